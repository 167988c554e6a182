package main

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	checkAll(t, map[string]happening{
		"a whole life": {
			reason: "every hook is flipped after its acknowledgement",
			happen: func(s *story) {
				s.updateAsked()
				s.takenOut(opFailOver)
				s.patched(deleteGate)
				s.is(appspub.LifecycleStateUpdating, deleteGate)
				s.is(appspub.LifecycleStateUpdated, deleteGate)
				s.call(opRegister)
				s.patched(traffic, updateGate, deleteGate)
				s.normal()
				s.preparingDelete()
				s.takenOut(opDeregister)
				s.patched(updateGate)
			},
		},
		"released without a call": {
			reason: "no call took the pod out",
			happen: func(s *story) { s.updateAsked(); s.patched(traffic, deleteGate) },
			want:   "I1: hook inPlaceUpdate was released",
		},
		"released without an acknowledgement": {
			reason: "a call whose answer was lost acknowledges nothing, though it was done",
			happen: func(s *story) {
				s.updateAsked()
				s.lost(opFailOver)
				s.wait(drainTime)
				s.patched(traffic, deleteGate)
			},
			want: "I1: hook inPlaceUpdate was released",
		},
		"released after a list": {
			reason: "what a list shows is acknowledged too",
			happen: func(s *story) {
				s.updateAsked()
				s.lost(opFailOver)
				s.listed(registry.OutOfService)
				s.wait(drainTime)
				s.patched(traffic, deleteGate)
			},
		},
		"released after an old acknowledgement": {
			reason: "the pod was put in again since",
			happen: func(s *story) {
				s.updateAsked()
				s.call(opFailOver)
				s.normal()
				s.lost(opRegister)
				s.preparingUpdate()
				s.wait(drainTime)
				s.patched(traffic, deleteGate)
			},
			want: "since call #3 put it in",
		},
		"released while it drains": {
			reason: "the drain counts from when the pod was taken out",
			happen: func(s *story) {
				s.updateAsked()
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
			happen: func(s *story) { s.deletionAsked(); s.takenOut(opFailOver); s.patched(traffic, updateGate) },
			want:   "I1: hook preDelete was released",
		},
		"never in service": {
			reason: "who was never told of a pod need not be told that it goes",
			happen: func(s *story) {
				s.preparingNormal()
				s.is(appspub.LifecycleStatePreparingDelete, updateGate, deleteGate)
				s.patched(updateGate)
			},
		},
		"wiped, and released at once": {
			reason: "the drain counts from when chaos took the pod out, where no manager did",
			happen: func(s *story) {
				s.updateAsked()
				s.wiped(keyOf(defaultRegistry, s.instance()), s.tick())
				s.listed(registry.Absent)
				s.patched(traffic, deleteGate)
			},
			want: "the drain is 1s",
		},
		"wiped, and released after the drain": {
			reason: "a list told that it is out",
			happen: func(s *story) {
				s.updateAsked()
				s.wiped(keyOf(defaultRegistry, s.instance()), s.tick())
				s.wait(drainTime)
				s.listed(registry.Absent)
				s.patched(traffic, deleteGate)
			},
		},
		"deleted in a gap": {
			reason: "kubelet may have begun in the gap, and then Kruise does not wait",
			happen: func(s *story) {
				s.deletionAsked()
				s.call(opDeregister)
				s.patching(200, updateGate)
				s.pod.gap, s.pod.deleting = true, true
				s.show(updateGate)
			},
		},
		"released in a gap while it drains": {
			reason: "a pod that is not being deleted after the gap was not before it either",
			happen: func(s *story) {
				s.updateAsked()
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
				s.takenOut(opFailOver)
				s.patching(200)
				s.pod.gap = true
				s.is(appspub.LifecycleStateUpdating)
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
				s.patching(200, updateGate)
				s.pod.gone = true
				s.show(updateGate)
			},
			want: "I1: hook preDelete was released",
		},
	})
}
