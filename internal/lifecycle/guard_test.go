package lifecycle

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestGuardOf(t *testing.T) {
	t.Parallel()
	none, hooked := Hooks{}, Hooks{PreDelete: []Handler{{Label: "example.com/registered", Value: "true"}}}
	alive, dying := &Pod{}, &Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	type row struct {
		reason            string
		pod               *Pod
		hooks             Hooks
		wanted, ownerGone bool
		want              Guard
	}
	expect.Each(t, map[string]row{
		"wanted":                    {"it keeps the pod until it was taken out", alive, hooked, true, false, GuardPut},
		"not wanted":                {"those that are there go too", alive, hooked, false, false, GuardFree},
		"not wanted, dying":         {"it is the way out of a registry that never answers again", dying, hooked, false, false, GuardFree},
		"dying":                     {"it waits for the registry's word", dying, hooked, true, false, GuardLeave},
		"without hooks":             {"Rollcall would not take it off later", alive, none, true, false, GuardFree},
		"the workload is just gone": {"the pod is about to be deleted", alive, none, true, true, GuardLeave},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, GuardOf(tc.pod, tc.hooks, tc.wanted, tc.ownerGone), "%s", tc.reason)
	})
}
