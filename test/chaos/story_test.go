package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	testUID     = "uid-1"
	testAddress = "127.100.0.1"
)

// The states that a pod moves through.
const (
	preparingNormal = appspub.LifecycleStatePreparingNormal
	normal          = appspub.LifecycleStateNormal
	preparingUpdate = appspub.LifecycleStatePreparingUpdate
	updating        = appspub.LifecycleStateUpdating
	updated         = appspub.LifecycleStateUpdated
	preparingDelete = appspub.LifecycleStatePreparingDelete
)

var testPod = podName{"ns", "pod-1"}

// story is what happens to one pod, a moment after the other.
type story struct {
	*journal

	w       *workload
	now     time.Time
	version uint64
	pod     sighting
	// late is a call that is held, open a patch that has no answer yet, and sight ends a blindness.
	late  *call
	open  *patch
	sight func(time.Time)
}

func newStory() *story {
	s := &story{journal: newJournal(), now: time.Unix(0, 0), version: 10}
	s.w = &workload{
		name: "web", namespace: testPod.namespace, services: map[string]int{"web": 8080},
		hooks: map[string][]string{hookPreNormal: {traffic}, hookInPlaceUpdate: {updateGate}, hookPreDelete: {deleteGate}},
	}
	s.pod = sighting{set: map[string]bool{}, address: testAddress, ready: true}
	return s
}

// tick is the next moment: each step takes a millisecond.
func (s *story) tick() time.Time {
	s.now = s.now.Add(time.Millisecond)
	return s.now
}

// step is one thing that happens.
type step func(*story)

type steps []step

func (s *story) play(all ...step) {
	for _, one := range all {
		one(s)
	}
}

// at shows the pod in a state with these handlers, and moves shows it in another with the handlers that it has.
func at(state appspub.LifecycleStateType, handlers ...string) step {
	return func(s *story) { s.play(stamped(state), shows(handlers...)) }
}

func moves(state appspub.LifecycleStateType) step {
	return func(s *story) { s.play(stamped(state), seen) }
}

// stamped has Kruise move the pod, which the watch has not shown yet.
func stamped(state appspub.LifecycleStateType) step {
	return func(s *story) { s.pod.state, s.pod.stamp = string(state), s.now.UTC().Format(time.RFC3339) }
}

// What is new of the pod, and not shown yet.
func gap(s *story)         { s.pod.gap = true }
func noGap(s *story)       { s.pod.gap = false }
func deleting(s *story)    { s.pod.deleting = true }
func gone(s *story)        { s.pod.gone = true }
func unready(s *story)     { s.pod.ready = false }
func readdressed(s *story) { s.pod.address = "127.100.0.2" }

// shows has the watch show the pod with these handlers, and seen with those that it has.
func shows(handlers ...string) step {
	return func(s *story) {
		s.version++
		s.pod.version, s.pod.at, s.pod.set = s.version, s.tick(), map[string]bool{}
		for _, h := range handlers {
			s.pod.set[h] = true
		}
		s.saw(testUID, testPod, s.w, s.pod)
	}
}

func seen(s *story) { shows(slices.Collect(maps.Keys(s.pod.set))...)(s) }

// sets and clears are a manager's patch, and the version of the pod that comes of it.
func sets(more ...string) step {
	return func(s *story) {
		all := append(slices.Collect(maps.Keys(s.pod.set)), more...)
		s.play(patches(200, all...), shows(all...))
	}
}

func clears(these ...string) step {
	return func(s *story) {
		left := slices.DeleteFunc(slices.Collect(maps.Keys(s.pod.set)), func(h string) bool { return slices.Contains(these, h) })
		s.play(patches(200, left...), shows(left...))
	}
}

// patches is a manager's patch that leaves these handlers, and the API server's answer to it; 0 is an answer that is lost.
func patches(status int, handlers ...string) step {
	return func(s *story) { patchesWith(s.body(handlers...), status)(s) }
}

func patchesWith(body string, status int) step {
	return func(s *story) {
		w := s.patchReceived("m1", testPod, body, s.tick())
		s.patchFinished(w, status, s.version+1, s.tick())
	}
}

// begins is a patch without its answer, which answered brings.
func begins(handlers ...string) step {
	return func(s *story) { s.open = s.patchReceived("m1", testPod, s.body(handlers...), s.tick()) }
}

func answered(s *story) { s.patchFinished(s.open, 200, s.version, s.tick()) }

func (s *story) body(handlers ...string) string {
	var operations []string
	for _, h := range s.w.handlers() {
		now, before := slices.Contains(handlers, h), s.pod.set[h]
		label, value, isLabel := strings.Cut(h, "=")
		path := "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1")
		switch {
		case now == before:
		case isLabel && now:
			operations = append(operations, fmt.Sprintf(`{"op":"add","path":%q,"value":%q}`, path, value))
		case isLabel:
			operations = append(operations, fmt.Sprintf(`{"op":"remove","path":%q}`, path))
		case now:
			operations = append(operations, fmt.Sprintf(`{"op":"add","path":"/metadata/finalizers/-","value":%q}`, h))
		default:
			operations = append(operations, fmt.Sprintf(
				`{"op":"test","path":"/metadata/finalizers/0","value":%q},{"op":"remove","path":"/metadata/finalizers/0"}`, h))
		}
	}
	return "[" + strings.Join(operations, ",") + "]"
}

func (s *story) instance() registry.Instance {
	return registry.Instance{Service: "web", Address: s.pod.address, Port: 8080, UID: testUID, Cluster: clusterName}
}

func (s *story) received(o op) *call {
	return s.callReceived("m1", defaultRegistry, o, s.instance(), "", s.tick())
}

// calls come, are done and are answered. What loses its answer is done, and what is refused is not.
func calls(o op) step            { return answeredWith(o, true, 204) }
func losesAnswer(o op) step      { return answeredWith(o, true, 0) }
func refuses(o op) step          { return answeredWith(o, false, 500) }
func waits(d time.Duration) step { return func(s *story) { s.now = s.now.Add(d) } }

func answeredWith(o op, done bool, status int) step {
	return func(s *story) {
		c := s.received(o)
		if done {
			s.callApplied(c, s.tick())
		}
		s.callAnswered(c, status, s.tick())
	}
}

// takesOut is an acknowledged call that takes the pod out, and the drain after it.
func takesOut(o op) step { return func(s *story) { s.play(calls(o), waits(drainTime)) } }

// holds is a call that has come and is not done yet; lands does it.
func holds(o op) step { return func(s *story) { s.late = s.received(o) } }

func lands(s *story) {
	s.callApplied(s.late, s.tick())
	s.callAnswered(s.late, 0, s.tick())
}

func lists(state registry.State) step {
	return func(s *story) {
		c := s.callReceived("m1", defaultRegistry, "instances", registry.Instance{Cluster: clusterName}, "", s.tick())
		seen := map[key]registry.State{}
		if state != registry.Absent {
			seen[keyOf(defaultRegistry, s.instance())] = state
		}
		s.callSaw(c, seen, s.tick())
		s.callAnswered(c, 200, s.tick())
	}
}

func wiped(s *story)     { s.wiped(keyOf(defaultRegistry, s.instance()), s.tick()) }
func goesBlind(s *story) { s.sight = s.blind(s.tick()) }
func sees(s *story)      { s.sight(s.tick()) }
func judges(s *story)    { s.judge(s.now) }

// born brings a pod to where a manager is to register it, and inService to Normal, in service.
func born(s *story) { at(preparingNormal, updateGate, deleteGate)(s) }

func inService(s *story) { s.play(born, calls(opRegister), sets(traffic), moves(normal)) }

// updateAsked brings a pod to where it is in service and Kruise asks whether it may be updated, and deletionAsked whether it
// may be deleted.
func updateAsked(s *story) { s.play(inService, moves(preparingUpdate)) }

func deletionAsked(s *story) { s.play(inService, moves(preparingDelete)) }

func allowed(s *story) { s.play(updateAsked, takesOut(opFailOver), clears(updateGate)) }

// happening is a story, and what the checker must say of it.
type happening struct {
	name, reason string
	happen       steps
	// want is in the violation; empty: there is none.
	want string
}

// checkAll has each happen, and expects its violation and no other.
func checkAll(t *testing.T, tests []happening) {
	t.Helper()
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			s.play(tc.happen...)
			s.judge(s.now)
			s.conclude(s.now)
			if len(s.pending)+len(s.unjudged) > 0 {
				t.Errorf("%s: %d flips and %d calls are not judged", tc.reason, len(s.pending), len(s.unjudged))
			}
			var texts []string
			for _, v := range s.broken() {
				texts = append(texts, v.text)
			}
			found := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, tc.want) })
			if tc.want == "" && len(texts) > 0 || tc.want != "" && (!found || len(texts) != 1) {
				t.Errorf("%s: got violations %q, want %q\n%s", tc.reason, texts, tc.want, s.history(testUID, newOutput(t.Output())))
			}
		})
	}
}
