package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
)

const (
	cluster, defaultRegistry = "chaos", "default"
	drain, callTimeout       = time.Second, 2 * time.Second
	landsWithin              = 2 * callTimeout
	readersLag               = 100 * time.Millisecond

	traffic, updateGate, deleteGate = "example.com/traffic=online", "example.com/update-gate=shut", "example.com/delete-gate=shut"

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

var testPod = types.NamespacedName{Namespace: "ns", Name: "pod-1"}

// story is what happens to one pod, a moment after the other.
type story struct {
	*Journal

	hooks   Hooks
	now     time.Time
	version uint64
	pod     Sighting
	// registry is where the pod belongs.
	registry string
	// late is a call that is held, or not answered yet, open a patch that has no answer yet, and sight ends a blindness.
	late  *Call
	open  *Patch
	made  uint64 // the version that the open patch makes
	sight func(time.Time)
	// readings are what clients were given; with them the registry is a real one.
	readings []Reading
}

func newStory() *story {
	return &story{
		Journal: New(Options{Drain: drain, CallTimeout: callTimeout, OnlyManagers: true}), now: time.Unix(0, 0), version: 10,
		hooks: Hooks{PreNormal: {traffic}, InPlaceUpdate: {updateGate}, PreDelete: {deleteGate}},
		pod:   Sighting{Set: map[string]bool{}, Address: testAddress, Ready: true}, registry: defaultRegistry,
	}
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
	return func(s *story) { s.pod.State, s.pod.Stamp = string(state), s.now.UTC().Format(time.RFC3339) }
}

// What is new of the pod, and not shown yet.
func gap(s *story)         { s.pod.Gap = true }
func noGap(s *story)       { s.pod.Gap = false }
func deleting(s *story)    { s.pod.Deleting = true }
func gone(s *story)        { s.pod.Gone = true }
func unready(s *story)     { s.pod.Ready = false }
func readdressed(s *story) { s.pod.Address = "127.100.0.2" }

// belongsTo has the pod's description say another registry, where its calls are made from then on. callsIn is one in any other.
func belongsTo(name string) step {
	return func(s *story) { s.play(func(s *story) { s.registry = name }, seen) }
}

// configured has the configuration say other registries, which no version of the pod shows. Its calls go to the first.
func configured(names ...string) step {
	return func(s *story) {
		s.registry = names[0]
		var keys []Key
		for _, name := range names {
			keys = append(keys, KeyOf(name, s.instance()))
		}
		s.Belongs(testUID, keys, s.tick())
	}
}

func callsIn(name string, o Op) step { return elsewhere(name, calls(o)) }

// shows has the watch show the pod with these handlers, and seen with those that it has.
func shows(handlers ...string) step {
	return func(s *story) {
		s.version++
		s.pod.Version, s.pod.At, s.pod.Set = s.version, s.tick(), map[string]bool{}
		for _, h := range handlers {
			s.pod.Set[h] = true
		}
		s.pod.Keys = []Key{KeyOf(s.registry, s.instance())}
		s.Saw(testUID, testPod, s.hooks, s.pod)
	}
}

// again shows the version that is known, as a new list does, and vanishes shows that the pod is gone.
func again(s *story) {
	s.pod.At, s.pod.Gap = s.tick(), true
	s.Saw(testUID, testPod, s.hooks, s.pod)
	s.pod.Gap = false
}

func vanishes(s *story) {
	s.pod.At, s.pod.Gone = s.tick(), true
	s.Saw(testUID, testPod, s.hooks, s.pod)
}

func seen(s *story) { shows(slices.Collect(maps.Keys(s.pod.Set))...)(s) }

// sets and clears are a manager's patch, and the version of the pod that comes of it.
func sets(more ...string) step {
	return func(s *story) {
		all := append(slices.Collect(maps.Keys(s.pod.Set)), more...)
		s.play(patches(200, all...), shows(all...))
	}
}

func clears(these ...string) step {
	return func(s *story) {
		left := slices.DeleteFunc(slices.Collect(maps.Keys(s.pod.Set)), func(h string) bool { return slices.Contains(these, h) })
		s.play(patches(200, left...), shows(left...))
	}
}

// patches is a manager's patch that leaves these handlers, and the API server's answer to it; 0 is an answer that is lost.
func patches(status int, handlers ...string) step {
	return func(s *story) { patchesWith(s.body(handlers...), status)(s) }
}

func patchesWith(body string, status int) step {
	return func(s *story) {
		w := s.patch(body)
		s.PatchFinished(w, status, s.version+1, s.tick())
	}
}

// begins is a patch without its answer, which answered brings.
func begins(handlers ...string) step {
	return func(s *story) { s.open, s.made = s.patch(s.body(handlers...)), s.version+1 }
}

func answered(s *story) { s.PatchFinished(s.open, 200, s.made, s.tick()) }

func (s *story) patch(body string) *Patch {
	return s.PatchReceived("m1", apiproxy.Write{Namespace: testPod.Namespace, Name: testPod.Name, Body: body, Received: s.tick()})
}

func (s *story) body(handlers ...string) string {
	var operations []string
	for _, h := range HandlersOf(s.hooks) {
		now, before := slices.Contains(handlers, h), s.pod.Set[h]
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
	return registry.Instance{Service: "web", Address: s.pod.Address, Port: 8080, UID: testUID, Cluster: cluster}
}

func (s *story) received(o Op) *Call { return s.receivedFor(o, s.instance()) }

func (s *story) receivedFor(o Op, in registry.Instance) *Call {
	return s.CallReceived(Call{Manager: "m1", Registry: s.registry, Op: o, Instance: in, Received: s.tick()})
}

// calls come, are done and are answered. What loses its answer is done, and what is refused is not.
func calls(o Op) step            { return answeredWith(o, true, 204) }
func losesAnswer(o Op) step      { return answeredWith(o, true, 0) }
func refuses(o Op) step          { return answeredWith(o, false, 500) }
func waits(d time.Duration) step { return func(s *story) { s.now = s.now.Add(d) } }

func answeredWith(o Op, done bool, status int) step {
	return func(s *story) {
		c := s.received(o)
		if done {
			s.CallApplied(c, s.tick())
		}
		s.CallAnswered(c, status, s.tick())
	}
}

// takesOut is an acknowledged call that takes the pod out, and the drain after it.
func takesOut(o Op) step { return func(s *story) { s.play(calls(o), waits(drain)) } }

// holds is a call that has come and is not done yet; lands does it.
func holds(o Op) step { return func(s *story) { s.late = s.received(o) } }

func lands(s *story) {
	s.CallApplied(s.late, s.tick())
	s.CallAnswered(s.late, 0, s.tick())
}

// lists is a list that shows a state, asks one that is not answered yet, maybe narrowed to an instance, and hears answers it.
func lists(state registry.State) step {
	return func(s *story) { s.play(asks(state, registry.Instance{Cluster: cluster}), hears) }
}

func asks(state registry.State, of registry.Instance) step {
	return func(s *story) {
		s.late = s.receivedFor("instances", of)
		seen := map[Key]registry.State{}
		if state != registry.Absent {
			seen[KeyOf(s.registry, s.instance())] = state
		}
		s.CallSaw(s.late, seen, s.tick())
	}
}

func hears(s *story) { s.CallAnswered(s.late, 200, s.tick()) }

func comesBack(s *story) { s.Appeared(KeyOf(s.registry, s.instance()), s.tick()) }
func wiped(s *story)     { s.Wiped(KeyOf(s.registry, s.instance()), s.tick()) }

// elsewhere has a step happen in another registry.
func elsewhere(name string, what step) step {
	return func(s *story) {
		belongs := s.registry
		s.registry = name
		what(s)
		s.registry = belongs
	}
}

// writes has a manager write another pod every second, for so long, and fails has the API server refuse that.
func writes(manager string, lasts time.Duration) step { return writesWith(200, manager, lasts) }
func fails(manager string, lasts time.Duration) step  { return writesWith(409, manager, lasts) }

func writesWith(status int, manager string, lasts time.Duration) step {
	return func(s *story) {
		for end := s.now.Add(lasts); s.now.Before(end); {
			s.now = s.now.Add(time.Second)
			w := s.PatchReceived(manager, apiproxy.Write{Namespace: testPod.Namespace, Name: "pod-2", Body: "[]", Received: s.tick()})
			s.PatchFinished(w, status, s.version, s.tick())
		}
	}
}

// reads has a client of a server be given the pod's place, or nothing, and readsApart one of a server without a majority.
func reads(server int, given bool) step { return reading(server, given, false) }
func readsApart(given bool) step        { return reading(2, given, true) }

func reading(server int, given, apart bool) step {
	return func(s *story) {
		s.CallsUnseen = true
		r := Reading{Server: server, Service: "web", Asked: s.tick(), Answered: s.tick(), Apart: apart}
		if given {
			r.Given = []string{PlaceOf(KeyOf(s.registry, s.instance())).Endpoint}
		}
		s.readings = append(s.readings, r)
	}
}

func goesBlind(s *story) { s.sight = s.Blind(s.tick()) }
func sees(s *story)      { s.sight(s.tick()) }
func judges(s *story)    { s.Judge(s.now) }

// born brings a pod to where a manager is to register it, and inService to Normal, in service.
func born(s *story) { at(preparingNormal, updateGate, deleteGate)(s) }

func inService(s *story) { s.play(born, calls(Register), sets(traffic), moves(normal)) }

// updateAsked brings a pod to where it is in service and Kruise asks whether it may be updated, and deletionAsked whether it
// may be deleted.
func updateAsked(s *story) { s.play(inService, moves(preparingUpdate)) }

func deletionAsked(s *story) { s.play(inService, moves(preparingDelete)) }

func allowed(s *story) { s.play(updateAsked, takesOut(FailOver), clears(updateGate)) }

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
			s.Judge(s.now)
			s.Conclude(s.now)
			s.JudgeReadings(s.readings, readersLag)
			if len(s.pending)+len(s.unjudged) > 0 {
				t.Errorf("%s: %d flips and %d calls are not judged", tc.reason, len(s.pending), len(s.unjudged))
			}
			var texts []string
			for _, v := range s.Broken() {
				texts = append(texts, v.Text)
			}
			found := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, tc.want) })
			if tc.want == "" && len(texts) > 0 || tc.want != "" && (!found || len(texts) != 1) {
				t.Errorf("%s: got violations %q, want %q\n%s", tc.reason, texts, tc.want, s.History(testUID, func(at time.Time) string { return at.Format("05.000") }))
			}
		})
	}
}
