package main

import (
	"cmp"
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
	s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
	s.call(opRegister)
	s.patched(traffic, updateGate, deleteGate)
	s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
}

// preparingUpdate has Kruise ask whether the pod in service may be updated.
func (s *story) preparingUpdate() {
	s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
}

// released brings a pod to where its update was allowed.
func (s *story) released() {
	s.inService()
	s.preparingUpdate()
	s.call(opFailOver)
	s.wait(drainTime)
	s.patched(traffic, deleteGate)
}

func TestChecker(t *testing.T) {
	t.Parallel()
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
				s.wait(drainTime)
				s.patched(deleteGate)
				s.is(appspub.LifecycleStateUpdating, deleteGate)
				s.is(appspub.LifecycleStateUpdated, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
				s.is(appspub.LifecycleStatePreparingDelete, traffic, updateGate, deleteGate)
				s.call(opDeregister)
				s.wait(drainTime)
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
				s.wait(drainTime)
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
				s.wait(drainTime)
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
				s.wait(drainTime)
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
				s.wait(drainTime / 2)
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
				s.wait(drainTime)
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
				late := s.held(opRegister)
				s.preparingUpdate()
				s.call(opFailOver)
				s.wait(drainTime)
				s.patched(traffic, deleteGate)
				s.land(late)
			},
			want: "on its way, put the pod in service after it",
		},
		"put in after the release, before the watch shows that": {
			reason: "the call was under way when the release came, and done before anybody could know of that",
			happen: func(s *story) {
				s.inService()
				late := s.held(opRegister)
				s.preparingUpdate()
				s.call(opFailOver)
				s.wait(drainTime)
				s.patching(200, traffic, deleteGate)
				s.land(late)
				s.judge(s.now)
				s.show(traffic, deleteGate)
			},
			want: "on its way, put the pod in service after it",
		},
		"put in after the release, before its answer comes": {
			reason: "what the flip was is known late, and the call waits for that",
			happen: func(s *story) {
				s.inService()
				late := s.held(opRegister)
				s.preparingUpdate()
				s.call(opFailOver)
				s.wait(drainTime)
				w := s.patchReceived("m1", testPod, s.body(traffic, deleteGate), s.tick())
				s.land(late)
				s.wait(explainWithin - time.Second)
				s.show(traffic, deleteGate)
				s.wait(2 * time.Second)
				s.judge(s.now)
				s.patchFinished(w, 200, s.version, s.tick())
			},
			want: "on its way, put the pod in service after it",
		},
		"put in later than the design assumes": {
			reason: "no manager can wait for what may land at any time",
			happen: func(s *story) {
				s.inService()
				late := s.held(opRegister)
				s.preparingUpdate()
				s.wait(landsWithin)
				s.call(opFailOver)
				s.wait(drainTime)
				s.patched(traffic, deleteGate)
				s.land(late)
			},
		},
		"put in late where it shall be": {
			reason: "the pod was rolled back right after the release",
			happen: func(s *story) {
				s.inService()
				late := s.held(opRegister)
				s.preparingUpdate()
				s.call(opFailOver)
				s.wait(drainTime)
				s.patched(traffic, deleteGate)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.land(late)
			},
		},
		"registered after the release": {
			reason: "nobody may put a pod in service that is being updated",
			happen: func(s *story) {
				s.released()
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				s.call(opRegister)
			},
			want: "sent afterwards, put the pod in service after it",
		},
		"registered after the release, before the pod is back": {
			reason: "where the pod comes later is no excuse",
			happen: func(s *story) {
				s.released()
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				s.call(opRegister)
				s.wait(2 * time.Second)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
			},
			want: "sent afterwards, put the pod in service after it",
		},
		"registered before the watch shows the pod back": {
			reason: "the manager's watch may be quicker than ours: Kruise's stamp tells since when the pod may have been there",
			happen: func(s *story) {
				s.released()
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				s.wait(2 * time.Second)
				s.pod.stamp = s.now.UTC().Format(time.RFC3339)
				s.pod.state = string(appspub.LifecycleStateUpdated)
				s.call(opRegister)
				s.wait(2 * time.Second)
				s.show(traffic, deleteGate)
			},
		},
		"registered after a deletion was cancelled": {
			reason: "the pod shall be in again",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingDelete, traffic, updateGate, deleteGate)
				s.call(opDeregister)
				s.wait(drainTime)
				s.patched(updateGate)
				s.is(appspub.LifecycleStatePreparingNormal, updateGate)
				s.patched(updateGate, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
			},
		},
		"registered when it is gone": {
			reason: "its last finalizer was removed because it was out",
			happen: func(s *story) {
				s.inService()
				s.pod.deleting = true
				s.show(traffic, updateGate, deleteGate)
				s.call(opDeregister)
				s.patched(traffic, updateGate)
				s.pod.gone = true
				s.show(traffic, updateGate)
				s.call(opRegister)
			},
			want: "sent afterwards, put the pod in service after it",
		},
		"registered after a gap": {
			reason: "where the pod was meanwhile nobody has seen",
			happen: func(s *story) {
				s.released()
				s.pod.gap = true
				s.is(appspub.LifecycleStatePreparingUpdate, traffic, updateGate, deleteGate)
				s.pod.gap = false
				s.call(opRegister)
			},
		},
		"taken out after the assertion": {
			reason: "a call that was on its way undoes what the assertion rests on",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				late := s.held(opFailOver)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.land(late)
				s.call(opRegister)
			},
			want: "I2: hook inPlaceUpdate was asserted, and call #1, on its way, took web",
		},
		"taken out after the assertion, when it shall be": {
			reason: "the next update has begun meanwhile",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				late := s.held(opFailOver)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.preparingUpdate()
				s.land(late)
			},
		},
		"taken out after the assertion, since it is not ready": {
			reason: "a pod that can't serve shall be out in every state",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				late := s.held(opFailOver)
				s.patched(traffic, updateGate, deleteGate)
				s.pod.ready = false
				s.show(traffic, updateGate, deleteGate)
				s.land(late)
			},
		},
		"taken out later than the design assumes": {
			reason: "no manager can wait for what may land at any time",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				late := s.held(opFailOver)
				s.wait(landsWithin)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.land(late)
			},
		},
		"taken out after chaos took it out": {
			reason: "the late call finds nothing that it could take out",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
				late := s.held(opFailOver)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.wiped(keyOf(defaultRegistry, s.instance()), s.tick())
				s.land(late)
			},
		},
		"another instance taken out after the assertion": {
			reason: "an address that the pod has no more is of no use to anybody",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.call(opRegister)
				late := s.held(opDeregister)
				s.pod.address = "127.100.0.2"
				s.show(traffic, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.land(late)
			},
		},
		"wiped, and released at once": {
			reason: "the drain counts from when chaos took the pod out, where nobody else did",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				s.wiped(keyOf(defaultRegistry, s.instance()), s.tick())
				s.listed(registry.Absent)
				s.patched(traffic, deleteGate)
			},
			want: "the drain is 1s",
		},
		"wiped, and released after the drain": {
			reason: "a list told that it is out",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				s.wiped(keyOf(defaultRegistry, s.instance()), s.tick())
				s.wait(drainTime)
				s.listed(registry.Absent)
				s.patched(traffic, deleteGate)
			},
		},
		"deleted in a gap": {
			reason: "kubelet may have begun in the gap, and then nobody waits",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingDelete, traffic, updateGate, deleteGate)
				s.call(opDeregister)
				s.patching(200, updateGate)
				s.pod.gap, s.pod.deleting = true, true
				s.show(updateGate)
			},
		},
		"released in a gap while it drains": {
			reason: "a pod that is not being deleted after the gap was not before it either",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				s.call(opFailOver)
				s.patching(200, traffic, deleteGate)
				s.pod.gap = true
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
			want: "the drain is 1s",
		},
		"released in a gap for another hook": {
			reason: "the deletion may have been cancelled in the gap, and an update asked for, with one finalizer for both",
			happen: func(s *story) {
				s.w.lifecycle.PreDelete = finalizerHook("example.io/gate")
				s.w.lifecycle.InPlaceUpdate = finalizerHook("example.io/gate")
				s.is(appspub.LifecycleStatePreparingNormal, "example.io/gate")
				s.call(opRegister)
				s.is(appspub.LifecycleStatePreparingDelete, "example.io/gate")
				s.call(opFailOver)
				s.wait(drainTime)
				s.patching(200)
				s.pod.gap = true
				s.is(appspub.LifecycleStateUpdating)
			},
		},
		"armed in a gap": {
			reason: "a deletion that was cancelled in the gap leads to where a hook may be set without a call",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.patching(200, traffic, updateGate, deleteGate)
				s.pod.gap = true
				s.is(appspub.LifecycleStatePreparingNormal, traffic, updateGate, deleteGate)
			},
		},
		"cleared by another's write": {
			reason: "a manager's patch of the record explains nothing",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				s.call(opFailOver)
				s.wait(drainTime)
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
				s.inService()
				s.preparingUpdate()
				s.patching(0, traffic, deleteGate)
				s.call(opFailOver)
				s.wait(drainTime)
				w := s.patchReceived("m1", testPod, `[]`, s.tick())
				s.patchFinished(w, 0, 0, s.tick())
				s.show(traffic, deleteGate)
			},
			want: "I1: hook inPlaceUpdate was released",
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
				s.is(appspub.LifecycleStateUpdated, deleteGate)
				s.lost(opRegister)
				s.is(appspub.LifecycleStatePreparingDelete, deleteGate)
				s.is(appspub.LifecycleStatePreparingNormal, deleteGate)
				s.is(appspub.LifecycleStateUpdating, deleteGate)
			},
		},
		"updated unasked from Normal after a cancelled deletion": {
			reason: "preNormal was not cleared for the update, and let the pod go on unarmed",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.lost(opRegister)
				s.is(appspub.LifecycleStatePreparingDelete, traffic, deleteGate)
				s.is(appspub.LifecycleStatePreparingNormal, traffic, deleteGate)
				s.is(appspub.LifecycleStateNormal, traffic, deleteGate)
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
			want: "unasked",
		},
		"preNormal set in Updated without an acknowledgement": {
			reason: "a cancelled deletion would make the pod count as available",
			happen: func(s *story) {
				s.is(appspub.LifecycleStateUpdated, deleteGate)
				s.refused(opRegister)
				s.patched(traffic, deleteGate)
			},
			want: "I2: " + traffic,
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
				s.wait(drainTime)
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
				s.patching(0, traffic, deleteGate)
				s.show(traffic, deleteGate)
			},
			want: "I1: hook inPlaceUpdate was released",
		},
		"an unknown answer of long ago": {
			reason: "the watch shows what a later patch did before the answer to that comes",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				s.patching(0, traffic, deleteGate)
				s.call(opFailOver)
				s.wait(drainTime)
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
				s.call(opFailOver)
				s.wait(drainTime)
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
			happen: func(s *story) {
				s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
				s.call(opRegister)
				s.show(traffic, updateGate, deleteGate)
			},
			want: "was set, and no manager's patch did it",
		},
		"cleared in a move": {
			reason: "Kruise moves the pod and clears no handler",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				s.call(opFailOver)
				s.is(appspub.LifecycleStateUpdating, traffic, deleteGate)
			},
			want: "was cleared, and no manager's patch did it",
		},
		"preNormal cleared before it is out": {
			reason: "Kruise waits for it again, should it cancel the deletion while the registry is down",
			happen: func(s *story) {
				s.inService()
				s.is(appspub.LifecycleStatePreparingDelete, traffic, updateGate, deleteGate)
				s.refused(opDeregister)
				s.patched(updateGate, deleteGate)
				s.call(opDeregister)
				s.wait(drainTime)
				s.patched(updateGate)
			},
		},
		"preNormal cleared in Normal": {
			reason: "the pod is to stay",
			happen: func(s *story) {
				s.inService()
				s.patched(updateGate, deleteGate)
			},
			want: "I3: handler " + traffic + " was cleared in state \"Normal\"",
		},
		"taken out for no reason": {
			reason: "a pod that is Normal, ready and has not moved stays in service",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				s.call(opFailOver)
				s.call(opRegister)
			},
			want: "I9: call #2 took web at " + testAddress + ":8080 in registry default out",
		},
		"taken out for a reason of before": {
			reason: "the manager's cache may lag, and the call was on its way",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
				s.wait(reasonLasts - time.Second)
				s.call(opFailOver)
			},
		},
		"taken out for a reason that is seen later": {
			reason: "our watch may lag behind the manager's, and Kruise stamps its move",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				moved := s.now
				s.call(opFailOver)
				s.wait(watchLags + time.Second)
				s.pod.state, s.pod.stamp = string(appspub.LifecycleStatePreparingUpdate), moved.UTC().Format(time.RFC3339)
				s.show(traffic, updateGate, deleteGate)
			},
		},
		"taken out, not ready": {
			reason: "that is what readiness is for",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				s.call(opFailOver)
				s.wait(watchLags / 2)
				s.pod.ready = false
				s.show(traffic, updateGate, deleteGate)
			},
		},
		"taken out, not ready much later": {
			reason: "no manager can have known",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				s.call(opFailOver)
				s.wait(2 * watchLags)
				s.pod.ready = false
				s.show(traffic, updateGate, deleteGate)
			},
			want: "I9: call #2",
		},
		"taken out at an address that it has left": {
			reason: "what is wrong goes",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				c := s.callReceived("m1", defaultRegistry, opDeregister, registry.Instance{
					Service: "web", Address: "127.100.0.99", Port: 8080, UID: testUID, Cluster: clusterName,
				}, "", s.tick())
				s.callApplied(c, s.tick())
				s.callAnswered(c, 204, s.tick())
			},
		},
		"taken out by a manager that was blind": {
			reason: "the API server was away since the pod came back",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				sight := s.blind(s.tick())
				s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
				s.wait(2 * reasonLasts)
				s.call(opFailOver)
				sight(s.tick())
			},
		},
		"taken out by a manager that was blind, and had no reason before": {
			reason: "a pod that was steady all along gives no one a reason",
			happen: func(s *story) {
				s.inService()
				s.wait(2 * reasonLasts)
				sight := s.blind(s.tick())
				s.wait(2 * reasonLasts)
				s.call(opFailOver)
				sight(s.tick())
			},
			want: "I9: call #2",
		},
		"taken out long after a manager was blind": {
			reason: "it has caught up",
			happen: func(s *story) {
				s.inService()
				s.preparingUpdate()
				sight := s.blind(s.tick())
				s.is(appspub.LifecycleStateNormal, traffic, updateGate, deleteGate)
				sight(s.tick())
				s.wait(blindAfter)
				s.call(opFailOver)
			},
			want: "I9: call #2",
		},
		"the last finalizer": {
			reason: "the patch that frees a dying pod shows only in its end",
			happen: func(s *story) {
				s.w.lifecycle.PreDelete = finalizerHook("example.io/gate")
				s.is(appspub.LifecycleStatePreparingNormal, updateGate, "example.io/gate")
				s.call(opRegister)
				s.pod.deleting = true
				s.show(updateGate, "example.io/gate")
				s.patching(200, updateGate)
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

// TestCheckerWaitsForTheAnswer: the watch may bring a version before the proxy has the answer to the patch.
func TestCheckerWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.is(appspub.LifecycleStatePreparingNormal, updateGate, deleteGate)
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
		// registry is where the entry is; empty: where the pod's is.
		registry string
		want     []grievanceKind
	}{
		"equal":          {reason: "nothing is wrong"},
		"out of service": {reason: "it could serve", change: func(e *registry.Entry) { e.State = registry.OutOfService }, want: []grievanceKind{"lost"}},
		"another's":      {reason: "no pod stands behind it", change: func(e *registry.Entry) { e.UID = "dead" }, want: []grievanceKind{"leaked", "lost"}},
		"old address":    {reason: "the pod is elsewhere", change: func(e *registry.Entry) { e.Address = "127.100.0.9" }, want: []grievanceKind{"leaked", "lost"}},
		"elsewhere":      {reason: "the pod is in another registry", registry: secondRegistry, want: []grievanceKind{"leaked", "lost"}},
		"unlisted":       {reason: "there no manager can find it", registry: unlistedRegistry, want: []grievanceKind{"lost"}},
		"on its way":     {reason: "it may not stay there", pods: func(p *livePod) { p.state = "Updating" }, want: []grievanceKind{"stuck"}},
		"not ready":      {reason: "a pod gets ready in the end", pods: func(p *livePod) { p.ready = false }, want: []grievanceKind{"stuck"}},
		"being deleted":  {reason: "it has to go", pods: func(p *livePod) { p.deleting = true }, want: []grievanceKind{"stuck"}},
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
			var got []grievanceKind
			for _, g := range compare(map[string]livePod{testUID: p}, map[string][]registry.Entry{cmp.Or(tc.registry, defaultRegistry): {e}}) {
				got = append(got, g.kind)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestWhoIsWaitedFor: on a busy machine KWOK is late, and that is no fault of a manager.
func TestWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		pod    sighting
		want   time.Duration
	}{
		"a hook":     {"a manager has to release it", sighting{state: "PreparingUpdate", ready: true}, moveWithin},
		"Kruise":     {"it moves a pod that is ready at once", sighting{state: "Updated", ready: true}, moveWithin},
		"probes":     {"KWOK makes the pod ready", sighting{state: "Updating"}, settleWithin},
		"a deletion": {"KWOK removes what nothing holds", sighting{state: "Normal", deleting: true}, settleWithin},
		"its holder": {"a manager has to free it", sighting{state: "Normal", deleting: true, held: true}, moveWithin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := map[string]livePod{testUID: {uid: testUID, name: testPod, workload: newStory().w, sighting: tc.pod}}
			got := compare(live, nil)
			if len(got) != 1 || got[0].kind != stuck || got[0].within != tc.want {
				t.Errorf("got %+v, want it stuck after %s: %s", got, tc.want, tc.reason)
			}
		})
	}
}
