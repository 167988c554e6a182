package controller

import (
	"cmp"
	"errors"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestWorkloadThatTheCacheHasNotSeen(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	unseen := fails[*kruisev1alpha1.CloneSet](true, apierrors.NewNotFound(schema.GroupResource{Resource: "clonesets"}, "web"))
	away := fails[*kruisev1alpha1.CloneSet](false, errors.New("the API server is away"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)

	w.unreadable = func(of runtime.Object, cached bool) error { return cmp.Or(unseen(of, cached), away(of, cached)) }
	w.reconcileFails(pod)
	w.expectJournal("nothing is known of its hooks, so nothing is done")

	w.unreadable = unseen
	w.reconciles(pod, "the API server knows it", failsOver, writes)
	w.expectHooks("", pod, "preDelete")
}

func TestHandlersOfNoWorkloadAreFreed(t *testing.T) {
	t.Parallel()
	const all = "preNormal inPlaceUpdate preDelete"
	type row struct {
		reason string
		happen func(w *world, web *kruisev1alpha1.CloneSet, pod *corev1.Pod)
		left   string
	}
	expect.Each(t, map[string]row{
		"workload gone": {"deleted in background or with orphans", func(w *world, web *kruisev1alpha1.CloneSet, _ *corev1.Pod) {
			w.deleteCloneSet(web)
		}, ""},
		"workload gone, pod orphaned": {"it has no owner any more", func(w *world, web *kruisev1alpha1.CloneSet, pod *corev1.Pod) {
			w.deleteCloneSet(web)
			w.changePod(pod, func(p *corev1.Pod) { p.OwnerReferences = nil })
		}, ""},
		"another workload under the name": {"it is not the pod's", func(w *world, web *kruisev1alpha1.CloneSet, _ *corev1.Pod) {
			w.deleteCloneSet(web)
			w.cloneSet("web")
		}, ""},
		"hooks edited away": {"its spec.lifecycle is empty now", func(w *world, web *kruisev1alpha1.CloneSet, _ *corev1.Pod) {
			w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle = nil })
		}, ""},
		"keys no longer ours by the configuration": {
			"what is not claimed is not touched, and the record says no longer that it was ours",
			func(w *world, web *kruisev1alpha1.CloneSet, _ *corev1.Pod) {
				w.deleteCloneSet(web)
				w.apply(func(s *choices) { s.Ownership.Owned = []string{"acme.io/*"} })
			}, all,
		},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		web := w.cloneSet("web")
		pod := w.servingPod(web, "web-1")
		tc.happen(w, web, pod)
		w.reconciles(pod, tc.reason, writes)
		w.expectHooks(tc.reason, pod, tc.left)
		w.expectInService(pod)
		w.reconciles(pod, "once")
	})
}

func TestHandlersThatAHookLosesWhileThePodDrainsAreFreed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	web := w.cloneSet("web")
	pod := w.servingPod(web, "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconciles(pod, "the drain begins", failsOver, writes)

	w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Lifecycle.PreDelete = &appspub.LifecycleHook{LabelsHandler: map[string]string{"example.com/leaving": "wait"}}
	})
	w.reconciles(pod, "the record names the new handler", writes)
	w.expectHooks("the old one goes with the hook that is released", pod, "inPlaceUpdate preDelete")
	w.reconciles(pod, "once")

	w.sleep(15 * time.Second)
	w.reconciles(pod, "the drain has passed", writes)
	w.expectHooks("nothing names the finalizer any more, and it would hold the pod when that is deleted", pod, "")
	w.reconciles(pod, "once")
}

func TestPodsWithoutAnOwnedHook(t *testing.T) {
	t.Parallel()
	foreign := func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Lifecycle = &appspub.Lifecycle{
			PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"other.io/backup"}},
		}
		web.Spec.Template.Finalizers = []string{"other.io/backup"}
	}
	hookless := func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Lifecycle, web.Spec.Template.Finalizers = nil, nil
	}
	w := newWorld(t)
	pods := []*corev1.Pod{
		w.bornPod(w.cloneSet("web", foreign), "web-1"),
		w.bornPod(w.cloneSet("api", hookless), "api-1"),
	}
	for _, pod := range pods {
		w.reconcile(pod)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.expectResult("", w.reconcile(pod), 0)
	}
	w.expectJournal("everything else is left alone")
	w.expectNoPages("memory follows the pods that are ours")
	w.expectEvents("")
	if got := w.r.State.Workloads.Unmatched(); got != 1 {
		t.Errorf("%d workloads have hooks of which none is ours, want the 1 that may have a typo in it", got)
	}
	w.apply(func(s *choices) { s.Ownership.Owned = append(s.Ownership.Owned, "other.io/backup") })
	w.reconcile(pods[0])
	if got := w.current(pods[0]).Finalizers; len(got) > 0 {
		t.Errorf("finalizers %v are still on the pod, though they are claimed now", got)
	}
	if got := w.r.State.Workloads.Unmatched(); got != 0 {
		t.Errorf("%d workloads have hooks of which none is ours, want none: the settings changed", got)
	}
}
