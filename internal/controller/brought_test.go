package controller

import (
	"errors"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// brings is what OpenKruise writes together with a move to Updating if the template got the handler of inPlaceUpdate.
func brings(pod *corev1.Pod) { pod.Labels[inPlaceLabel] = "hold" }

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

// TestUpdateThatTakesTheHandlerAway: without the hook inPlaceUpdate the pod is still in rotation then, and can be deleted at any moment.
func TestUpdateThatTakesTheHandlerAway(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		registry error
		api      func(func() error) error
		journal  []string
		hooks    string
	}
	expect.Each(t, map[string]row{
		"the registry is down": {"a deletion has to wait for it", errors.New("down"), nil, []string{writes, failsOver + failed}, "preDelete"},
		"the handler is refused": {"the pod has to be out all the same", nil, func(func() error) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-1", errors.New("no"))
		}, []string{writes + failed, failsOver}, "preNormal"},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		pod := w.servingPod(w.cloneSet("web", func(set *kruisev1alpha1.CloneSet) { set.Spec.Lifecycle.InPlaceUpdate = nil }), "web-1")
		w.kruiseMoves(pod, appspub.LifecycleStateUpdating, unready, func(pod *corev1.Pod) {
			pod.Finalizers = nil
			delete(pod.Labels, inPlaceLabel)
		})
		if tc.registry != nil {
			w.registry.FailNext(fakeregistry.Match{}, tc.registry)
		}
		w.patching(tc.api)
		w.reconciles(pod, tc.reason, tc.journal...)
		w.expectHooks(tc.reason, pod, tc.hooks)
	})
}
