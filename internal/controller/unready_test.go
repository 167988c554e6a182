package controller

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func dampedFor5s(s *choices) { s.UnreadyAfter = 5 * time.Second }

// turnsUnready as a probe fails, and ready again.
func (w *world) turnsUnready(pod *corev1.Pod, change ...func(*corev1.Pod)) {
	w.Helper()
	w.changePod(pod, append(change, unready, func(pod *corev1.Pod) {
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(w.clock.Now())
		}
	})...)
}

// TestFlap: a pod that misses a probe costs its clients nothing, and one that stays unready leaves soon.
func TestFlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dampedFor5s)
	pod := w.servingPods(3)[0]
	w.turnsUnready(pod)
	w.expectResult("it may be over by then", w.reconcile(pod), 5*time.Second)
	w.expectJournal("clients of a registry pay for every change")
	w.sleep(2 * time.Second)
	w.changePod(pod, ready)
	w.reconciles(pod, "nothing happened")

	w.turnsUnready(pod)
	w.sleep(4 * time.Second)
	w.rebuilt(func(*Options) {})
	w.expectResult("another leader counts from when it turned", w.reconcile(pod), time.Second)
	w.sleep(time.Second)
	w.reconciles(pod, "it does not answer", failsOver, writes)
}

// TestFlap_Certain: what is known not to pass by itself is not waited for.
func TestFlap_Certain(t *testing.T) {
	t.Parallel()
	crashed := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		}}
	}
	for name, tc := range map[string]struct {
		reason string
		change func(w *world, pod *corev1.Pod)
	}{
		"its container has ended": {"every request fails", func(w *world, pod *corev1.Pod) { w.turnsUnready(pod, crashed) }},
		"it is about to be deleted": {"the end was announced", func(w *world, pod *corev1.Pod) {
			w.turnsUnready(pod, condition(corev1.DisruptionTarget, corev1.ConditionTrue))
		}},
		"OpenKruise updates it": {"a hook is never damped", func(w *world, pod *corev1.Pod) {
			w.turnsUnready(pod)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dampedFor5s)
			pod := w.servingPods(3, func(pod *corev1.Pod) {
				if len(pod.Spec.Containers) == 0 {
					pod.Spec.Containers = []corev1.Container{{Name: "app"}}
				}
			})[0]
			tc.change(w, pod)
			w.reconcile(pod)
			w.expectNotInService(pod)
		})
	}
}
