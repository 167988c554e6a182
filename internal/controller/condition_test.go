package controller

import (
	"errors"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestPodCondition follows a pod through an update, and counts what the condition costs.
func TestPodCondition(t *testing.T) {
	t.Parallel()
	const in, out = "condition of web-1: True", "condition of web-1: False"
	w := newWorld(t)
	w.rebuilt(func(o *Options) { o.PodCondition = func() bool { return true } })
	pod := w.bornPod(w.cloneSet("web"), "web-1", unready)
	w.reconciles(pod, "it was never in, which needs no words")

	w.changePod(pod, ready)
	w.reconciles(pod, "the registry has acknowledged it", registers, writes, in)
	w.reconcileIn(pod, appspub.LifecycleStateNormal)
	w.reconciles(pod, "it says so already")

	stop := w.registry.Fail(anyCall(), errors.New("down"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconciles(pod, "it was asked to be taken out, whatever came of it", failsOver+failed, writes, out)
	w.reconciles(pod, "once", failsOver+failed)
	stop()
	w.reconciles(pod, "the condition stays", failsOver, writes)

	w.takeEvents()
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.conditionRefused = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/status"}, "web-1", errors.New("no right"))
	w.reconciles(pod, "the hook does not wait for the condition", registers, writes)
	w.expectEvents("a person has to give the right", "Warning PatchRefused patching the pod's condition: pods/status")
	w.conditionRefused = nil
	w.reconciles(pod, "it is tried again", in)
	w.deletePod(pod)
	w.reconciles(pod, "a pod that goes tells it by going", deregisters, writes)
}
