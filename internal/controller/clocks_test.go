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
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// movedAt is stamped by an OpenKruise whose clock is ahead.
func (w *world) movedAt(ahead time.Duration) func(*corev1.Pod) {
	return annotated(appspub.LifecycleTimestampKey, w.clock.Now().Add(ahead).Format(time.RFC3339))
}

// TestClockOfOpenKruiseIsAhead: a move can't be later than when it was first seen.
func TestClockOfOpenKruiseIsAhead(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, proceeds)
	w.registry.Fail(anyCall(), errors.New("down"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate, w.movedAt(time.Hour))
	w.reconcile(pod)
	began := w.clock.Now()
	w.expectWaits("since it was first seen", Wait{Hook: "inPlaceUpdate", Reason: "RegistryUnavailable", Since: began})
	w.sleep(time.Minute - time.Second)
	w.reconcile(pod)
	w.expectHooks("the deadline is not over", pod, "inPlaceUpdate preDelete")
	w.takeEvents()
	w.sleep(time.Second)
	w.reconcile(pod)
	w.expectHooks("the failure policy applies all the same", pod, "preDelete")
	w.expectEvents("", "Warning ReleasedUnacknowledged hook inPlaceUpdate was released after 1m0s")
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

// TestClockOfKubeletIsAhead: what is missing shows as soon as it does on other nodes.
func TestClockOfKubeletIsAhead(t *testing.T) {
	t.Parallel()
	t.Run("a pod that is not ready", func(t *testing.T) {
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
	})
	t.Run("an application that does not register", func(t *testing.T) {
		t.Parallel()
		w := steering(t)
		readyAt := func(ahead time.Duration) func(*corev1.Pod) {
			at := metav1.NewTime(w.clock.Now().Add(ahead))
			return func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = at }
		}
		web := w.cloneSet("web")
		w.reconcile(w.bornPod(web, "web-1", readyAt(visit.AppStarts)))
		w.expectEvents("it may start, by a clock that is a little ahead")
		w.reconcile(w.bornPod(web, "web-2", readyAt(time.Hour)))
		w.expectEvents("it is not there for an hour", "Warning AppNotRegistered hook preNormal waits")
	})
}
