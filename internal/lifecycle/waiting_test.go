package lifecycle

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWaiting(t *testing.T) {
	t.Parallel()
	normal, update, del := label("example.com/normal", "go"), label("example.com/update", "held"), finalizer("example.com/f")
	foreign := label("other.io/update", "true")
	all := &Workload{Lifecycle: &appspub.Lifecycle{
		PreNormal: hookOf(normal), InPlaceUpdate: hookOf(update, foreign), PreDelete: hookOf(del),
	}}
	refused := &Workload{Lifecycle: all.Lifecycle, Selector: selector(normal.Label, update.Label)}
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	dying := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)} }
	cases := map[string]struct {
		reason   string
		state    appspub.LifecycleStateType
		workload *Workload
		set      []Handler
		change   func(*corev1.Pod)
		want     Hook
	}{
		"PreparingNormal, unset":            {"Kruise waits for all to be set", appspub.LifecycleStatePreparingNormal, all, nil, ready, PreNormal},
		"PreparingNormal, unset, not ready": {"it waits, whether or not it is our turn", appspub.LifecycleStatePreparingNormal, all, nil, nil, PreNormal},
		"PreparingNormal, set":              {"it goes on", appspub.LifecycleStatePreparingNormal, all, []Handler{normal}, ready, ""},
		"PreparingNormal, refused":          {"it waits for what we refuse to set", appspub.LifecycleStatePreparingNormal, refused, nil, ready, PreNormal},
		"PreparingNormal, no hook":          {"there is nothing to wait for", appspub.LifecycleStatePreparingNormal, nil, nil, ready, ""},
		"PreparingUpdate, set":              {"Kruise waits for none to be set", appspub.LifecycleStatePreparingUpdate, all, []Handler{update}, ready, InPlaceUpdate},
		"PreparingUpdate, refused":          {"it waits for what we refuse to clear", appspub.LifecycleStatePreparingUpdate, refused, []Handler{update}, nil, InPlaceUpdate},
		"PreparingUpdate, foreign":          {"it waits for others, which is not ours to tell", appspub.LifecycleStatePreparingUpdate, all, []Handler{foreign}, nil, ""},
		"Updating":                          {"the image changes", appspub.LifecycleStateUpdating, all, nil, nil, ""},
		"Updated, unset, not ready":         {"it waits, whether or not it is our turn", appspub.LifecycleStateUpdated, all, nil, nil, InPlaceUpdate},
		"Updated, unset":                    {"Kruise waits for all to be set", appspub.LifecycleStateUpdated, all, nil, ready, InPlaceUpdate},
		"Updated, set":                      {"it goes on", appspub.LifecycleStateUpdated, all, []Handler{update}, ready, ""},
		"PreparingDelete, set":              {"Kruise waits for none to be set", appspub.LifecycleStatePreparingDelete, all, []Handler{del}, nil, PreDelete},
		"PreparingDelete, cleared":          {"it goes on", appspub.LifecycleStatePreparingDelete, all, []Handler{normal}, nil, ""},
		"Normal":                            {"it serves", appspub.LifecycleStateNormal, all, []Handler{del, update}, ready, ""},
		"unknown":                           {"we know nothing of it", "Hibernating", all, []Handler{del, update}, ready, ""},
		"dying, held":                       {"our finalizer holds it, named by the workload or not", appspub.LifecycleStateNormal, nil, []Handler{del}, dying, PreDelete},
		"dying, free":                       {"labels hold no pod that is being deleted", appspub.LifecycleStateNormal, all, []Handler{update}, dying, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podIn(tc.state)
			for _, h := range tc.set {
				setHandler(pod, h)
			}
			if tc.change != nil {
				tc.change(pod)
			}
			d := Decide(Input{Pod: pod, Hooks: HooksOf(tc.workload, testOwnership()), Record: RecordOf(pod), Ownership: testOwnership()})
			if d.Waiting != tc.want {
				t.Errorf("Kruise is said to wait for %q, want %q: %s", d.Waiting, tc.want, tc.reason)
			}
		})
	}
}
