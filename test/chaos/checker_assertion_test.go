package main

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
)

func TestAssertion(t *testing.T) {
	t.Parallel()
	checkAll(t, map[string]happening{
		"asserted without a call": {
			reason: "no call put the pod in",
			happen: func(s *story) { s.preparingNormal(); s.patched(traffic, updateGate, deleteGate) },
			want:   "I2: " + traffic,
		},
		"asserted without an acknowledgement": {
			reason: "an error acknowledges nothing",
			happen: func(s *story) {
				s.preparingNormal()
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
			happen: func(s *story) { s.is(appspub.LifecycleStatePreparingNormal); s.patched(updateGate, deleteGate) },
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
			reason: "in Updated no manager can arm the pod before it is in service",
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
			reason: "Kruise need not ask",
			happen: func(s *story) { s.is(appspub.LifecycleStatePreparingNormal); s.is(appspub.LifecycleStateUpdating) },
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
	})
}
