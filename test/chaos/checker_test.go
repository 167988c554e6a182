package main

import (
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
	s := &story{journal: newJournal(time.Second), now: time.Unix(0, 0), version: 10}
	s.w = &workload{
		name: "web", namespace: testPod.namespace, services: map[string]int{"web": 8080},
		lifecycle: appspub.Lifecycle{
			PreNormal:     labelHook("example.com/traffic", "online"),
			InPlaceUpdate: labelHook("example.com/update-gate", "shut"),
			PreDelete:     labelHook("example.com/delete-gate", "shut"),
		},
	}
	s.pod = sighting{set: map[string]bool{}, address: testAddress}
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
	s.pod.state = string(state)
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
	w := s.patchReceived("m1", testPod, "", s.tick())
	s.patchFinished(w, 200, s.version+1, s.tick())
	s.show(handlers...)
}

func (s *story) instance() registry.Instance {
	return registry.Instance{Service: "web", Address: testAddress, Port: 8080, UID: testUID, Cluster: clusterName}
}

// call comes, is done and is answered.
func (s *story) call(o op) *call {
	c := s.callReceived("m1", o, s.instance(), "", s.tick())
	s.callApplied(c, s.tick())
	s.callAnswered(c, 204, s.tick())
	return c
}

// lost is a call that is done, and whose answer is lost.
func (s *story) lost(o op) {
	c := s.callReceived("m1", o, s.instance(), "", s.tick())
	s.callApplied(c, s.tick())
	s.callAnswered(c, 0, s.tick())
}

// refused is a call that is not done.
func (s *story) refused(o op) {
	c := s.callReceived("m1", o, s.instance(), "", s.tick())
	s.callAnswered(c, 500, s.tick())
}

// listed is a list that says this of the instance.
func (s *story) listed(state registry.State) {
	c := s.callReceived("m1", "instances", registry.Instance{Cluster: clusterName}, "", s.tick())
	seen := map[key]registry.State{}
	if state != registry.Absent {
		seen[keyOf(s.instance())] = state
	}
	s.callSaw(c, seen, s.tick())
	s.callAnswered(c, 200, s.tick())
}

// inService brings a pod to Normal, in service.
func (s *story) inService() {
	s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
	s.call(opRegister)
	s.patched(traffic, updateGate, deleteGate)
	s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
}

func TestChecker(t *testing.T) {
	t.Parallel()
	const drain = time.Second
	tests := map[string]struct {
		reason string
		happen func(*story)
		// want is in the violation; empty: there is none.
		want string
	}{
		"a whole life": {
			reason: "every hook is flipped after its acknowledgement",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.call(opFailOver)
				s.wait(drain)
				s.patched(traffic, deleteGate)
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
				s.is(appspub.LifecycleStatePreparingDelete, traffic, updateGate, deleteGate)
				s.call(opDeregister)
				s.wait(drain)
				s.patched(updateGate)
			},
		},
		"released without a call": {
			reason: "nobody took the pod out",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.patched(traffic, deleteGate)
			},
			want: "I1: hook inPlaceUpdate was released",
		},
		"released without an acknowledgement": {
			reason: "a call whose answer was lost acknowledges nothing, though it was done",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.lost(opFailOver)
				s.wait(drain)
				s.patched(traffic, deleteGate)
			},
			want: "I1: hook inPlaceUpdate was released",
		},
		"released after a list": {
			reason: "what a list shows is acknowledged too",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.lost(opFailOver)
				s.listed(registry.OutOfService)
				s.wait(drain)
				s.patched(traffic, deleteGate)
			},
		},
		"released after an old acknowledgement": {
			reason: "the pod was put in again since",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.call(opFailOver)
				s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
				s.lost(opRegister)
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.wait(drain)
				s.patched(traffic, deleteGate)
			},
			want: "since call #3 put it in",
		},
		"released while it drains": {
			reason: "the drain counts from when the pod was taken out",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.call(opFailOver)
				s.wait(drain / 2)
				s.patched(traffic, deleteGate)
			},
			want: "the drain is 1s",
		},
		"deleted without a drain": {
			reason: "kubelet does not wait, so neither does the manager",
			happen: func(s *story) {
				s.inService()
				s.pod.deleting = true
				s.show(traffic, updateGate, deleteGate)
				s.call(opDeregister)
				s.patched(traffic, updateGate)
			},
		},
		"deleted and not taken out": {
			reason: "out of service is not enough for a pod that goes",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingDelete, traffic, updateGate, deleteGate)
				s.call(opFailOver)
				s.wait(drain)
				s.patched(traffic, updateGate)
			},
			want: "I1: hook preDelete was released",
		},
		"never in service": {
			reason: "who was never told of a pod need not be told that it goes",
			happen: func(s *story) {
				s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
				s.is(appspub.LifecycleStatePreparingDelete, updateGate, deleteGate)
				s.patched(updateGate)
			},
		},
		"put in after the release": {
			reason: "a call that was on its way undoes what the release rests on",
			happen: func(s *story) {
				s.inService()
				late := s.callReceived("m1", opRegister, s.instance(), string(holdBack), s.tick())
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.call(opFailOver)
				s.wait(drain)
				s.patched(traffic, deleteGate)
				s.judge(s.now)
				s.callApplied(late, s.tick())
			},
			want: "put the pod in service after it",
		},
		"asserted without a call": {
			reason: "nobody put the pod in",
			happen: func(s *story) {
				s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
				s.patched(traffic, updateGate, deleteGate)
			},
			want: "I2: " + traffic,
		},
		"asserted without an acknowledgement": {
			reason: "an error acknowledges nothing",
			happen: func(s *story) {
				s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
				s.refused(opRegister)
				s.patched(traffic, updateGate, deleteGate)
			},
			want: "I2: " + traffic,
		},
		"asserted and taken out": {
			reason: "the last call counts",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.lost(opFailOver)
				s.patched(traffic, updateGate, deleteGate)
			},
			want: "I2: " + updateGate,
		},
		"asserted after a wipe": {
			reason: "what the registry loses by itself is not the manager's fault",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.listed(registry.Absent)
				s.patched(traffic, updateGate, deleteGate)
			},
		},
		"armed": {
			reason: "a hook may be set on a pod that is in rotation, or about to be",
			happen: func(s *story) {
				s.is(appspub.LifecycleStatePreparingNormal)
				s.patched(updateGate, deleteGate)
			},
		},
		"updated unasked": {
			reason: "the pod was put in service before it was armed",
			happen: func(s *story) {
				s.is(appspub.LifecycleStatePreparingNormal)
				s.call(opRegister)
				s.patched(traffic)
				s.is(appspub.LifecycleStateNormal, traffic)
				s.is(appspub.LifecycleStateUpdating, traffic)
			},
			want: "unasked",
		},
		"updated unasked after a cancelled deletion": {
			reason: "in Updated nobody can arm the pod before it is in service",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.lost(opRegister)
				s.is(appspub.LifecycleStatePreparingDelete, traffic, deleteGate)
				s.is(appspub.LifecycleStateNormal, traffic, deleteGate)
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
		},
		"updated before it was in service": {
			reason: "nobody has to be asked",
			happen: func(s *story) {
				s.is(appspub.LifecycleStatePreparingNormal)
				s.is(appspub.LifecycleStateUpdating)
			},
		},
		"cleared in another state": {
			reason: "the pod was rolled back meanwhile: Kruise would not ask before the next update",
			happen: func(s *story) {
				s.inService()
				s.call(opFailOver)
				s.wait(drain)
				s.patched(traffic, deleteGate)
			},
			want: "I3: handler " + updateGate + " was cleared",
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
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
			},
		},
		"an unknown answer": {
			reason: "the API server died: the patch may have been done when it came, and then it was early",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				w := s.patchReceived("m1", testPod, "", s.tick())
				s.patchFinished(w, 0, 0, s.tick())
				s.show(traffic, deleteGate)
			},
			want: "I1: hook inPlaceUpdate was released",
		},
		"after a gap": {
			reason: "what was not seen is not held against anybody",
			happen: func(s *story) {
				s.inService()
				s.pod.gap = true
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
		},
		"the last finalizer": {
			reason: "the patch that frees a dying pod shows only in its end",
			happen: func(s *story) {
				s.w.lifecycle.PreDelete = finalizerHook("example.io/gate")
				s.is(appspub.LifecycleStatePreparingNormal, updateGate, "example.io/gate")
				s.call(opRegister)
				s.pod.deleting = true
				s.show(updateGate, "example.io/gate")
				w := s.patchReceived("m1", testPod, "", s.tick())
				s.patchFinished(w, 200, s.version+1, s.tick())
				s.pod.gone = true
				s.show(updateGate)
			},
			want: "I1: hook preDelete was released",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			tc.happen(s)
			s.judge(s.now)
			if len(s.pending) > 0 {
				t.Errorf("%s: %d flips are not judged", tc.reason, len(s.pending))
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

// TestCheckerWaitsForTheAnswer: the watch may bring a version before the proxy has the answer to the patch.
func TestCheckerWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
	w := s.patchReceived("m1", testPod, "", s.tick())
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

func TestCompare(t *testing.T) {
	t.Parallel()
	w := &workload{name: "web", services: map[string]int{"web": 8080}}
	normal := livePod{uid: testUID, name: testPod, workload: w, sighting: sighting{
		state: string(appspub.LifecycleStateNormal), ready: true, address: testAddress,
	}}
	entry := registry.Entry{State: registry.InService, Instance: registry.Instance{
		Service: "web", Address: testAddress, Port: 8080, Cluster: clusterName, UID: testUID,
	}}
	tests := map[string]struct {
		reason string
		pods   func(*livePod)
		change func(*registry.Entry)
		want   []string
	}{
		"equal":          {reason: "nothing is wrong"},
		"out of service": {reason: "it could serve", change: func(e *registry.Entry) { e.State = registry.OutOfService }, want: []string{"lost"}},
		"another's":      {reason: "no pod stands behind it", change: func(e *registry.Entry) { e.UID = "dead" }, want: []string{"leaked", "lost"}},
		"old address":    {reason: "the pod is elsewhere", change: func(e *registry.Entry) { e.Address = "127.100.0.9" }, want: []string{"leaked", "lost"}},
		"on its way":     {reason: "it may not stay there", pods: func(p *livePod) { p.state = "Updating" }, want: []string{"stuck"}},
		"not ready":      {reason: "a pod gets ready in the end", pods: func(p *livePod) { p.ready = false }, want: []string{"stuck"}},
		"being deleted":  {reason: "it has to go", pods: func(p *livePod) { p.deleting = true }, want: []string{"stuck"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, e := normal, entry
			if tc.pods != nil {
				tc.pods(&p)
			}
			if tc.change != nil {
				tc.change(&e)
			}
			var got []string
			for _, g := range compare(map[string]livePod{testUID: p}, []registry.Entry{e}) {
				got = append(got, g.kind)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestOverdue: a grievance counts from when a manager led, and only once its time is up.
func TestOverdue(t *testing.T) {
	t.Parallel()
	g := &game{}
	began := time.Unix(100, 0)
	one := grievance{kind: "lost", text: "x", within: 10 * time.Second}
	first := since(since(nil, []grievance{one}, began), []grievance{one}, began.Add(5*time.Second))
	g.reportOverdue(first, began.Add(3*time.Second), began.Add(12*time.Second), false)
	if g.report.failed() {
		t.Fatal("reported 9 s after a manager led, and it had 10")
	}
	g.reportOverdue(first, began.Add(3*time.Second), began.Add(13*time.Second), false)
	if len(g.report.lost) != 1 {
		t.Fatal("not reported when the time was up")
	}
}
