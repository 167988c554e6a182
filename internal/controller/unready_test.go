package controller

import (
	"testing"
	"time"

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
