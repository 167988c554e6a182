package controller

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// brings is what OpenKruise writes together with a move to Updating if the template got the handler of inPlaceUpdate.
func brings(pod *corev1.Pod) { pod.Labels[inPlaceLabel] = "hold" }

func TestUpdateThatBringsTheHandler(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdating, brings, unready)
	w.reconciles(pod, "OpenKruise may look at any moment, so no call comes before", writes, failsOver, writes)
	w.expectHooks("OpenKruise waits in Updated now", pod, "preDelete")
	w.expectEvents("what brings it has to go", "Warning HandlerInTemplate the workload's template sets label "+inPlaceLabel+"=hold")
	w.reconciles(pod, "once")
	w.expectEvents("once")
}

func TestHandlerThatIsSetBeforeThePodIsBack(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcileIn(pod, appspub.LifecycleStateUpdating, unready)
	w.takeJournal()

	w.kruiseMoves(pod, appspub.LifecycleStateUpdated, brings)
	w.reconciles(pod, "the pod is not ready, whoever set the handler", writes)
	w.expectHooks("", pod, "preDelete")
}

func TestUpdateOfMetadataAloneThatBringsTheHandler(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.takeJournal()
	w.takeEvents()

	t.Log("OpenKruise was faster than the manager.")
	w.kruiseMoves(pod, appspub.LifecycleStateNormal, brings)
	w.reconciles(pod, "clients are to find it", registers, writes)
	w.expectInService(pod)
	w.expectEvents("the next update would do the same", "Warning HandlerInTemplate the workload's template sets label "+inPlaceLabel+"=hold")
}
