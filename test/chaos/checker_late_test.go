package main

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// TestLateCall is about what comes after a flip and undoes what it rests on.
func TestLateCall(t *testing.T) {
	t.Parallel()
	checkAll(t, map[string]happening{
		"put in after the release": {
			reason: "a call that was on its way undoes what the release rests on",
			happen: func(s *story) {
				s.inService()
				late := s.held(opRegister)
				s.preparingUpdate()
				s.takenOut(opFailOver)
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
				s.takenOut(opFailOver)
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
				s.takenOut(opFailOver)
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
				s.takenOut(opFailOver)
				s.patched(traffic, deleteGate)
				s.land(late)
			},
		},
		"put in late where it should be": {
			reason: "the pod was rolled back right after the release",
			happen: func(s *story) {
				s.inService()
				late := s.held(opRegister)
				s.preparingUpdate()
				s.takenOut(opFailOver)
				s.patched(traffic, deleteGate)
				s.is(appspub.LifecycleStateUpdated, traffic, deleteGate)
				s.land(late)
			},
		},
		"registered after the release": {
			reason: "no manager may put a pod in service that is being updated",
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
			reason: "the pod should be in again",
			happen: func(s *story) {
				s.deletionAsked()
				s.takenOut(opDeregister)
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
			reason: "the watch has not shown where the pod was meanwhile",
			happen: func(s *story) {
				s.released()
				s.pod.gap = true
				s.preparingUpdate()
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
		"taken out after the assertion, when it should be": {
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
			reason: "a pod that can't serve should be out in every state",
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
	})
}
