package main

import (
	"fmt"
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
	// A pod of this workload has one service, and a label for each hook.
	traffic, updateGate, deleteGate = "example.com/traffic=online", "example.com/update-gate=shut", "example.com/delete-gate=shut"
)

var testPod = podName{"ns", "pod-1"}

// story is what happens to one pod, a moment after the other.
type story struct {
	*journal

	w       *workload
	now     time.Time
	version uint64
	pod     sighting
}

func newStory() *story {
	s := &story{journal: newJournal(), now: time.Unix(0, 0), version: 10}
	s.w = &workload{
		name: "web", namespace: testPod.namespace, services: map[string]int{"web": 8080},
		lifecycle: appspub.Lifecycle{
			PreNormal:     labelHook("example.com/traffic", "online"),
			InPlaceUpdate: labelHook("example.com/update-gate", "shut"),
			PreDelete:     labelHook("example.com/delete-gate", "shut"),
		},
	}
	s.pod = sighting{set: map[string]bool{}, address: testAddress, ready: true}
	return s
}

// wait lets time pass; each other step takes a millisecond.
func (s *story) wait(d time.Duration) { s.now = s.now.Add(d) }

func (s *story) tick() time.Time {
	s.wait(time.Millisecond)
	return s.now
}

// is shows the pod in a state with these handlers.
func (s *story) is(state appspub.LifecycleStateType, handlers ...string) {
	s.pod.state, s.pod.stamp = string(state), s.now.UTC().Format(time.RFC3339)
	s.show(handlers...)
}

func (s *story) show(handlers ...string) {
	s.version++
	s.pod.version, s.pod.at, s.pod.set = s.version, s.tick(), map[string]bool{}
	for _, h := range handlers {
		s.pod.set[h] = true
	}
	s.saw(testUID, testPod, s.w, s.pod)
}

// patched is a manager's patch, and the version of the pod that comes of it.
func (s *story) patched(handlers ...string) {
	s.patching(200, handlers...)
	s.show(handlers...)
}

// patching is a manager's patch that leaves these handlers, and the API server's answer to it; 0 is an answer that is lost.
func (s *story) patching(status int, handlers ...string) {
	w := s.patchReceived("m1", testPod, s.body(handlers...), s.tick())
	s.patchFinished(w, status, s.version+1, s.tick())
}

// body is the patch that leaves these handlers.
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

// call comes, is done and is answered.
func (s *story) call(o op) *call {
	c := s.callReceived("m1", defaultRegistry, o, s.instance(), "", s.tick())
	s.callApplied(c, s.tick())
	s.callAnswered(c, 204, s.tick())
	return c
}

// held is a call that has come and is not done yet; land does it.
func (s *story) held(o op) *call {
	return s.callReceived("m1", defaultRegistry, o, s.instance(), string(holdBack), s.tick())
}

func (s *story) land(c *call) {
	s.callApplied(c, s.tick())
	s.callAnswered(c, 0, s.tick())
}

// lost is a call that is done, and whose answer is lost.
func (s *story) lost(o op) {
	c := s.callReceived("m1", defaultRegistry, o, s.instance(), "", s.tick())
	s.callApplied(c, s.tick())
	s.callAnswered(c, 0, s.tick())
}

// refused is a call that is not done.
func (s *story) refused(o op) {
	c := s.callReceived("m1", defaultRegistry, o, s.instance(), "", s.tick())
	s.callAnswered(c, 500, s.tick())
}

// listed is a list that says this of the instance.
func (s *story) listed(state registry.State) {
	c := s.callReceived("m1", defaultRegistry, "instances", registry.Instance{Cluster: clusterName}, "", s.tick())
	seen := map[key]registry.State{}
	if state != registry.Absent {
		seen[keyOf(defaultRegistry, s.instance())] = state
	}
	s.callSaw(c, seen, s.tick())
	s.callAnswered(c, 200, s.tick())
}

// inService brings a pod to Normal, in service.
func (s *story) inService() {
	s.preparingNormal()
	s.call(opRegister)
	s.patched(traffic, updateGate, deleteGate)
	s.normal()
}

func (s *story) preparingNormal() {
	s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
}

func (s *story) normal() { s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate) }

// preparingUpdate has Kruise ask whether the pod may be updated, and preparingDelete whether it may be deleted.
func (s *story) preparingUpdate() {
	s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
}

func (s *story) preparingDelete() {
	s.is(appspub.LifecycleStatePreparingDelete, traffic, updateGate, deleteGate)
}

// updateAsked brings a pod to where it is in service and Kruise asks whether it may be updated.
func (s *story) updateAsked() {
	s.inService()
	s.preparingUpdate()
}

// deletionAsked brings a pod to where it is in service and Kruise asks whether it may be deleted.
func (s *story) deletionAsked() {
	s.inService()
	s.preparingDelete()
}

// takenOut is an acknowledged call that takes the pod out, and the drain after it.
func (s *story) takenOut(o op) {
	s.call(o)
	s.wait(drainTime)
}

// released brings a pod to where its update was allowed.
func (s *story) released() {
	s.updateAsked()
	s.takenOut(opFailOver)
	s.patched(traffic, deleteGate)
}

// happening is a story, and what the checker must say of it.
type happening struct {
	reason string
	happen func(*story)
	// want is in the violation; empty: there is none.
	want string
}

// checkAll has each happen, and expects its violation and no other.
func checkAll(t *testing.T, tests map[string]happening) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			tc.happen(s)
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
