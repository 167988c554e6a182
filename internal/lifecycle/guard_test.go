package lifecycle

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

func TestGuardPolicy(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		policy GuardPolicy
		facts  GuardFacts
		want   Guard
	}{
		"Always":                    {"whatever the registry can", GuardAlways, GuardFacts{Hooked: true}, GuardPut},
		"Never":                     {"those that are there go too", GuardNever, GuardFacts{Hooked: true, Unlisted: true}, GuardFree},
		"Never, dying":              {"it is the way out of a registry that never answers again", GuardNever, GuardFacts{Hooked: true, Dying: true}, GuardFree},
		"Auto, unlisted":            {"nobody would find what the pod left", GuardAuto, GuardFacts{Hooked: true, Unlisted: true}, GuardPut},
		"Auto, listed":              {"a resync finds it", GuardAuto, GuardFacts{Hooked: true}, GuardFree},
		"Auto, undescribed":         {"it isn't known which registries it is in", GuardAuto, GuardFacts{Hooked: true, Undescribed: true}, GuardLeave},
		"dying":                     {"it waits for the registry's word", GuardAlways, GuardFacts{Hooked: true, Dying: true}, GuardLeave},
		"dying, listed by now":      {"it waits for the registry's word", GuardAuto, GuardFacts{Dying: true}, GuardLeave},
		"no longer ours":            {"nobody would take it off", GuardAlways, GuardFacts{}, GuardFree},
		"the workload is just gone": {"the pod is about to be deleted", GuardAlways, GuardFacts{OwnerGone: true}, GuardLeave},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.policy.Of(tc.facts); got != tc.want {
				t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestTheGuardIsNoHandler(t *testing.T) {
	t.Parallel()
	ownership := Ownership{Owned: []string{"rollcall.dev/*"}}
	workload := &Workload{Lifecycle: &appspub.Lifecycle{PreDelete: hookOf(finalizer(GuardFinalizer))}}
	hooks := HooksOf(workload, ownership)
	if len(hooks.PreDelete) > 0 || len(hooks.Refused) != 1 {
		t.Errorf("accepted %v and refused %v, want the guard refused", hooks.PreDelete, hooks.Refused)
	}
}
