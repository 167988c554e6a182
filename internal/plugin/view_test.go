package plugin

import (
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestLeftBy: a pod has left the registry for its update, and its CloneSet shows why OpenKruise does not update it.
func TestLeftBy(t *testing.T) {
	t.Parallel()
	met := func(set *kruisev1alpha1.CloneSet) { set.Status.UpdatedReplicas = 1 }
	type row struct {
		reason string
		state  appspub.LifecycleStateType
		change func(*kruisev1alpha1.CloneSet)
		want   string
	}
	expect.Each(t, map[string]row{
		"the partition is met": {
			"another pod was updated or replaced first", appspub.LifecycleStatePreparingUpdate, met, "has 1 updated pods, and its partition allows 1",
		},
		"paused": {
			"whatever the partition", appspub.LifecycleStatePreparingUpdate,
			func(set *kruisev1alpha1.CloneSet) { met(set); set.Spec.UpdateStrategy.Paused = true }, "is paused",
		},
		"the partition was changed": {
			"what it allows is of an earlier generation", appspub.LifecycleStatePreparingUpdate,
			func(set *kruisev1alpha1.CloneSet) { met(set); set.Generation++ }, "",
		},
		"not met": {
			"maxUnavailable or another handler keeps it", appspub.LifecycleStatePreparingUpdate, func(*kruisev1alpha1.CloneSet) {}, "",
		},
		"to be deleted": {"no partition keeps a deletion", appspub.LifecycleStatePreparingDelete, met, ""},
	}, func(t *testing.T, c row) {
		set := &kruisev1alpha1.CloneSet{Status: kruisev1alpha1.CloneSetStatus{ExpectedUpdatedReplicas: 1}}
		c.change(set)
		got := leftBy(Pod{State: string(c.state), facts: facts{set: set}})
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("got %q, want %q: %s", got, c.want, c.reason)
		}
	})
}
