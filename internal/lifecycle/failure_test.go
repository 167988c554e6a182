package lifecycle

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestDeadline(t *testing.T) {
	t.Parallel()
	both := FailurePolicy{PreDelete: time.Minute, InPlaceUpdate: 2 * time.Minute}
	moved, err := time.Parse(time.RFC3339, testTime)
	expect.NoError(t, err)
	died := moved.Add(time.Hour)
	dying := func(p *Pod) { p.DeletionTimestamp = &metav1.Time{Time: died} }
	stamped := func(text string) func(*Pod) {
		return func(p *Pod) { annotate(p, appspub.LifecycleTimestampKey, text) }
	}
	ended := func(p *Pod) { p.Status.Phase = corev1.PodFailed }
	released := func(p *Pod) {
		p.Labels, p.Finalizers = map[string]string{appspub.LifecycleStateKey: p.Labels[appspub.LifecycleStateKey]}, nil
	}
	update, del, normal := label("example.com/update", "held"), finalizer("example.com/f"), label("example.com/normal", "go")
	workload := &Workload{Lifecycle: &appspub.Lifecycle{PreNormal: hookOf(normal), InPlaceUpdate: hookOf(update), PreDelete: hookOf(del)}}
	type row struct {
		reason string
		policy FailurePolicy
		state  appspub.LifecycleStateType
		change func(*Pod)
		want   time.Time
	}
	expect.Each(t, map[string]row{
		"PreparingDelete":         {"from Kruise's timestamp", both, appspub.LifecycleStatePreparingDelete, nil, moved.Add(time.Minute)},
		"PreparingUpdate":         {"from Kruise's timestamp", both, appspub.LifecycleStatePreparingUpdate, nil, moved.Add(2 * time.Minute)},
		"preDelete blocks":        {"each hook has its own policy", FailurePolicy{InPlaceUpdate: time.Minute}, appspub.LifecycleStatePreparingDelete, nil, time.Time{}},
		"inPlaceUpdate blocks":    {"each hook has its own policy", FailurePolicy{PreDelete: time.Minute}, appspub.LifecycleStatePreparingUpdate, nil, time.Time{}},
		"dying":                   {"from when its containers have ended", both, appspub.LifecycleStateNormal, dying, died.Add(time.Minute)},
		"dying, blocked":          {"it is preDelete's policy", FailurePolicy{InPlaceUpdate: time.Minute}, appspub.LifecycleStateNormal, dying, time.Time{}},
		"dying, free":             {"nothing that Rollcall owns holds it", both, appspub.LifecycleStateNormal, func(p *Pod) { dying(p); released(p) }, time.Time{}},
		"evicted, then scaled in": {"its containers have ended, and OpenKruise waits", both, appspub.LifecycleStatePreparingDelete, ended, moved.Add(time.Minute)},
		"evicted, then updated":   {"the same", both, appspub.LifecycleStatePreparingUpdate, ended, moved.Add(2 * time.Minute)},
		"evicted, then updated, and blocked": {
			"it is inPlaceUpdate's policy", FailurePolicy{PreDelete: time.Minute}, appspub.LifecycleStatePreparingUpdate, ended, time.Time{},
		},
		"evicted":                  {"nothing waits", both, appspub.LifecycleStateNormal, ended, time.Time{}},
		"PreparingNormal":          {"no pod comes into rotation unacknowledged", both, appspub.LifecycleStatePreparingNormal, nil, time.Time{}},
		"Updated":                  {"no pod comes into rotation unacknowledged", both, appspub.LifecycleStateUpdated, released, time.Time{}},
		"Normal":                   {"nothing waits", both, appspub.LifecycleStateNormal, nil, time.Time{}},
		"released already":         {"nothing waits", both, appspub.LifecycleStatePreparingUpdate, released, time.Time{}},
		"a timestamp that is none": {"it waits no longer than by a wrong clock", both, appspub.LifecycleStatePreparingDelete, stamped("yesterday"), farFuture().Add(time.Minute)},
	}, func(t *testing.T, tc row) {
		pod := podIn(tc.state)
		annotate(pod, appspub.LifecycleTimestampKey, testTime)
		setHandler(pod, update)
		setHandler(pod, del)
		if tc.change != nil {
			tc.change(pod)
		}
		d := Decide(Input{Pod: pod, Hooks: HooksOf(workload, testOwnership()), Ownership: testOwnership()})
		since, after := tc.policy.Deadline(pod, d)
		if (after == 0) != tc.want.IsZero() || after != 0 && !since.Add(after).Equal(tc.want) {
			t.Errorf("got %s after %s, want %s: %s", after, since, tc.want, tc.reason)
		}
	})
}
