package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// movedAt is stamped by an OpenKruise whose clock is ahead.
func (w *world) movedAt(ahead time.Duration) func(*corev1.Pod) {
	return annotated(appspub.LifecycleTimestampKey, w.clock.Now().Add(ahead).Format(time.RFC3339))
}

func TestRolloutWaitsAndTheClockOfOpenKruiseIsAhead(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.registry.Fail(anyCall(), errors.New("down"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate, w.movedAt(time.Hour))
	w.reconcile(pod)
	w.takeEvents()
	w.sleep(waiting.RolloutPatience)
	w.reconcile(pod)
	w.expectEvents("the rollout is not told an hour later", "Warning RolloutWaits pod web-1 has waited for 1m0s")
}

// TestClockOfKubeletIsAhead: what is missing shows as soon as it does on other nodes. For an application, visit has the same.
func TestClockOfKubeletIsAhead(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, func(c *choices) { c.PanicThreshold = 100 })
	turned := metav1.NewTime(w.clock.Now().Add(time.Hour))
	w.changePod(pod, unready, func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = turned })
	w.reconcile(pod)
	w.expectEvents("any rollout may take so long")
	w.sleep(reason.Patience)
	w.reconcile(pod)
	if events := w.takeEvents(); len(events) == 0 || !strings.Contains(strings.Join(events, "\n"), "Warning NotReady") {
		t.Errorf("got Events %q, want that the pod is missing", events)
	}
}
