package main

import (
	"slices"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// TestFlip is about who flips a handler, and in which state.
func TestFlip(t *testing.T) {
	t.Parallel()
	checkAll(t, map[string]happening{
		"cleared by another's write": {
			reason: "a manager's patch of the record explains nothing",
			happen: func(s *story) {
				s.updateAsked()
				s.takenOut(opFailOver)
				w := s.patchReceived("m1", testPod, `[{"op":"add","path":"/metadata/annotations/rollcall.dev~1registration","value":"{}"}]`,
					s.tick())
				s.patchFinished(w, 200, s.version+1, s.tick())
				s.show(traffic, deleteGate)
			},
			want: "no manager's patch did it",
		},
		"two patches without an answer": {
			reason: "the one that may have done it counts, and not the one after it, which was right",
			happen: func(s *story) {
				s.updateAsked()
				s.patching(0, traffic, deleteGate)
				s.takenOut(opFailOver)
				w := s.patchReceived("m1", testPod, `[]`, s.tick())
				s.patchFinished(w, 0, 0, s.tick())
				s.show(traffic, deleteGate)
			},
			want: "I1: hook inPlaceUpdate was released",
		},
		"cleared in another state": {
			reason: "the pod was rolled back meanwhile: Kruise would not ask before the next update",
			happen: func(s *story) { s.inService(); s.takenOut(opFailOver); s.patched(traffic, deleteGate) },
			want:   "I3: handler " + updateGate + " was cleared",
		},
		"set in another state": {
			reason: "the next update came meanwhile",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				s.patched(traffic, updateGate, deleteGate)
			},
			want: "I3: handler " + updateGate + " was set",
		},
		"Kruise sets it": {
			reason: "Kruise itself sets the handlers when another update comes",
			happen: func(s *story) { s.is(appspub.LifecycleStateUpdated, traffic, deleteGate); s.preparingUpdate() },
		},
		"an unknown answer": {
			reason: "the API server died: the patch may have been done when it came, and then it was early",
			happen: func(s *story) { s.updateAsked(); s.patching(0, traffic, deleteGate); s.show(traffic, deleteGate) },
			want:   "I1: hook inPlaceUpdate was released",
		},
		"an unknown answer of long ago": {
			reason: "the watch shows what a later patch did before the answer to that comes",
			happen: func(s *story) {
				s.updateAsked()
				s.patching(0, traffic, deleteGate)
				s.takenOut(opFailOver)
				w := s.patchReceived("m1", testPod, s.body(traffic, deleteGate), s.tick())
				s.show(traffic, deleteGate)
				s.judge(s.now)
				s.patchFinished(w, 200, s.version, s.tick())
			},
		},
		"an unknown answer to the opposite": {
			reason: "a patch that sets a handler does not clear it",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.patching(0, traffic, updateGate, deleteGate)
				s.patched(traffic, updateGate, deleteGate)
				s.preparingUpdate()
				s.show(traffic, deleteGate)
			},
			want: "no manager's patch did it",
		},
		"after a gap": {
			reason: "what state the patch met was not seen, and is not held against anybody",
			happen: func(s *story) {
				s.inService()
				s.takenOut(opFailOver)
				s.patching(200, traffic, deleteGate)
				s.pod.gap = true
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
		},
		"cleared in a gap by no patch": {
			reason: "patches are seen while the watch is away",
			happen: func(s *story) {
				s.inService()
				s.pod.gap = true
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
			want: "was cleared, and no manager's patch did it",
		},
		"set by no patch": {
			reason: "Kruise would count a pod that no one has acknowledged",
			happen: func(s *story) { s.preparingNormal(); s.call(opRegister); s.show(traffic, updateGate, deleteGate) },
			want:   "was set, and no manager's patch did it",
		},
		"cleared in a move": {
			reason: "Kruise moves the pod and clears no handler",
			happen: func(s *story) {
				s.updateAsked()
				s.call(opFailOver)
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
			want: "was cleared, and no manager's patch did it",
		},
		"preNormal cleared before it is out": {
			reason: "Kruise waits for it again, should it cancel the deletion while the registry is down",
			happen: func(s *story) {
				s.deletionAsked()
				s.refused(opDeregister)
				s.patched(updateGate, deleteGate)
				s.takenOut(opDeregister)
				s.patched(updateGate)
			},
		},
		"preNormal cleared in Normal": {
			reason: "the pod is to stay",
			happen: func(s *story) { s.inService(); s.patched(updateGate, deleteGate) },
			want:   "I3: handler " + traffic + " was cleared in state \"Normal\"",
		},
	})
}

// TestFlipWaitsForTheAnswer: the watch may bring a version before the proxy has the answer to the patch.
func TestFlipWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.preparingNormal()
	w := s.patchReceived("m1", testPod, s.body(traffic, updateGate, deleteGate), s.tick())
	s.show(traffic, updateGate, deleteGate)
	s.judge(s.now)
	if got := s.broken(); len(got) > 0 {
		t.Fatalf("judged before the answer: %v", got)
	}
	s.patchFinished(w, 200, s.version, s.tick())
	s.judge(s.now)
	if got := s.broken(); len(got) != 1 {
		t.Fatalf("after the answer: %v, want one violation", got)
	}
}

func TestPatchChanges(t *testing.T) {
	t.Parallel()
	const other = "example.io/other"
	tests := map[string]struct {
		reason string
		body   string
		want   []string
	}{
		"a label": {
			reason: "set or cleared, it is changed", want: []string{traffic},
			body: `[{"op":"remove","path":"/metadata/labels/example.com~1traffic"}]`,
		},
		"a tested label": {
			reason: "a test changes nothing",
			body:   `[{"op":"test","path":"/metadata/labels/example.com~1traffic","value":"online"}]`,
		},
		"another finalizer": {
			reason: "the test says what stands at the index", want: []string{other},
			body: `[{"op":"test","path":"/metadata/finalizers/1","value":"example.io/other"},{"op":"remove","path":"/metadata/finalizers/1"}]`,
		},
		"any finalizer": {
			reason: "a manager that tests nothing may remove any", want: []string{"example.io/gate", other},
			body: `[{"op":"remove","path":"/metadata/finalizers/1"}]`,
		},
		"an added finalizer": {
			reason: "the test of the whole list names others too", want: []string{other},
			body: `[{"op":"test","path":"/metadata/finalizers","value":["example.io/gate"]},
				{"op":"add","path":"/metadata/finalizers/-","value":"example.io/other"}]`,
		},
		"the record": {
			reason: "it names the handlers",
			body:   `[{"op":"add","path":"/metadata/annotations/rollcall.dev~1registration","value":"example.com/traffic example.io/gate"}]`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := patch{body: tc.body}
			var got []string
			for _, h := range []string{traffic, "example.io/gate", other} {
				if w.changes(h, true) || w.changes(h, false) {
					got = append(got, h)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
