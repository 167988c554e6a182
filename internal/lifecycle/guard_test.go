package lifecycle

import (
	"testing"
)

func TestGuardOf(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		facts  GuardFacts
		want   Guard
	}{
		"wanted":                    {"it keeps the pod until it was taken out", GuardFacts{Wanted: true, Hooked: true}, GuardPut},
		"not wanted":                {"those that are there go too", GuardFacts{Hooked: true}, GuardFree},
		"not wanted, dying":         {"it is the way out of a registry that never answers again", GuardFacts{Hooked: true, Dying: true}, GuardFree},
		"dying":                     {"it waits for the registry's word", GuardFacts{Wanted: true, Hooked: true, Dying: true}, GuardLeave},
		"without hooks":             {"Rollcall would not take it off later", GuardFacts{Wanted: true}, GuardFree},
		"the workload is just gone": {"the pod is about to be deleted", GuardFacts{Wanted: true, OwnerGone: true}, GuardLeave},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := GuardOf(tc.facts); got != tc.want {
				t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}
