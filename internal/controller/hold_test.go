package controller

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// held is the annotation of a person who looks into the pod.
func (w *world) held(length time.Duration) func(*corev1.Pod) {
	return annotated(lifecycle.AnnotationHold, lifecycle.Hold{Until: w.clock.Now().Add(length), Why: "heap dump"}.String())
}

// TestHeldPod: a person takes the last pod of a service out of rotation for an hour. It stays out across leaders, an update passes, and it
// comes back by itself.
func TestHeldPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s, keepsUnready)
	pod := w.servingPods(1)[0]
	w.changePod(pod, w.held(time.Hour))
	w.reconcile(pod)
	w.expectJournal("it leaves, whatever the panic threshold", failsOver, writes)
	w.expectEvents("whoever finds it out of rotation knows why", "Normal HeldOut the pod is held out of rotation until ")
	w.expectWaits("it shows in the metric", Wait{Reason: "HeldOut", Since: w.clock.Now()})
	w.rebuilt(func(*Options) {})
	w.reconcile(pod)
	w.expectNotInService(pod)
	w.takeJournal()

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.sleep(15 * time.Second)
	w.reconciles(pod, "it is out, and drained: OpenKruise may update it", writes)

	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.sleep(time.Hour)
	w.reconcile(pod)
	w.expectInService(pod)
}
