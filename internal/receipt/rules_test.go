package receipt

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// TestRulesAllowTheDecisionTable has the rules allow every edit that the table prescribes. What the manager writes before the
// registry has acknowledged must release and assert no hook.
func TestRulesAllowTheDecisionTable(t *testing.T) {
	t.Parallel()
	inputs := tableInputs()
	for _, in := range inputs {
		state, ends := in.Pod.Labels[appspub.LifecycleStateKey], lifecycle.Ends(in.Pod)
		hooks, d := named(in.Hooks), lifecycle.Decide(in)
		for step, edit := range map[string]lifecycle.Edit{"before the call": d.Arm, "with the call": d.Out, "then": d.Then} {
			hold := func(verb string, handlers []lifecycle.Handler, by func(handler, state string, deleting bool) (string, bool)) {
				for _, h := range handlers {
					if hook, allowed := by(h.String(), state, ends); !allowed || hook != "" && step != "then" {
						t.Errorf("row %d %s %s %s in state %q, with the hooks %v; the rules allow that: %t, for hook %q",
							d.Row, verb, h, step, state, hooks, allowed, hook)
					}
				}
			}
			hold("clears", edit.Clear, hooks.Released)
			hold("sets", edit.Set, hooks.Asserted)
		}
	}
	if len(inputs) < 30_000 {
		t.Errorf("there are %d inputs, so a dimension was lost", len(inputs))
	}
}

func named(h lifecycle.Hooks) Hooks {
	all := Hooks{}
	for hook, handlers := range map[string][]lifecycle.Handler{
		PreNormal: h.PreNormal, InPlaceUpdate: h.InPlaceUpdate, PreDelete: h.PreDelete,
	} {
		for _, h := range handlers {
			all[hook] = append(all[hook], h.String())
		}
	}
	return all
}

// tableInputs are pods in every state, ready or not, that end or not, with each choice of keys for the hooks and of those that
// are set.
func tableInputs() (all []lifecycle.Input) {
	keys := []string{"example.com/a", "example.com/b", "example.com/c"}
	owned := lifecycle.Ownership{Owned: []string{"example.com/*"}}
	hook := func(key int) *appspub.LifecycleHook {
		return &appspub.LifecycleHook{LabelsHandler: map[string]string{keys[key]: "on"}}
	}
	states := []appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingUpdate,
		appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated, appspub.LifecycleStatePreparingDelete,
	}
	endings := []func(*corev1.Pod){
		func(*corev1.Pod) {},
		func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
		func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed },
	}
	for shared := range 27 {
		hooks := lifecycle.HooksOf(&lifecycle.Workload{Lifecycle: &appspub.Lifecycle{
			PreNormal: hook(shared % 3), InPlaceUpdate: hook(shared / 3 % 3), PreDelete: hook(shared / 9),
		}}, owned)
		for set := range 8 {
			for _, state := range states {
				for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
					for _, ends := range endings {
						pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appspub.LifecycleStateKey: string(state)}}}
						pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
						for i, key := range keys {
							if set>>i&1 == 1 {
								pod.Labels[key] = "on"
							}
						}
						ends(pod)
						for _, keep := range []bool{false, true} {
							for _, record := range []lifecycle.Record{{}, {Want: lifecycle.InService}} {
								all = append(all, lifecycle.Input{Pod: lifecycle.PodOf(pod), Hooks: hooks, Record: record, Ownership: owned, KeepUnready: keep})
							}
						}
					}
				}
			}
		}
	}
	return all
}
