package controller

import (
	"errors"
	"testing"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// instance names the pod as OpenKruise does: after its CloneSet, which was there before, and this.
func instance(id string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels[kruisev1alpha1.CloneSetInstanceID] = id
		pod.CreationTimestamp = metav1.NewTime(testEpoch().Add(time.Hour))
	}
}

func relabelled(pod *corev1.Pod)  { pod.Labels["app"] = "debug" }
func unowned(pod *corev1.Pod)     { pod.OwnerReferences = nil }
func kept(pod *corev1.Pod)        { pod.Annotations[lifecycle.AnnotationKeepDetached] = "true" }
func unnamed(pod *corev1.Pod)     { delete(pod.Labels, kruisev1alpha1.CloneSetInstanceID) }
func keptOtherwise(p *corev1.Pod) { p.Annotations[lifecycle.AnnotationKeepDetached] = "no" }

// TestPodWithoutAWorkload: a person has taken it from its CloneSet, or the CloneSet has left it.
func TestPodWithoutAWorkload(t *testing.T) {
	t.Parallel()
	const detached, orphaned = "Warning Orphaned the pod is out of rotation: its labels were changed", "Warning Orphaned the pod belongs to no workload"
	type changes = []func(*corev1.Pod)
	gone := func(w *world, web *kruisev1alpha1.CloneSet) { w.deleteCloneSet(web) }
	type row struct {
		reason string
		set    func(*world, *kruisev1alpha1.CloneSet)
		pod    changes
		event  string
	}
	expect.Each(t, map[string]row{
		"labels changed":           {"OpenKruise counts it no more, and makes another", nil, changes{relabelled, unowned}, detached},
		"labels changed, and kept": {"a person wants it in rotation", nil, changes{relabelled, unowned, kept}, ""},
		"another value":            {"it does not say to keep it", nil, changes{relabelled, unowned, keptOtherwise}, detached},
		"not released yet":         {"OpenKruise has yet to notice", nil, changes{relabelled}, ""},
		"labels match":             {"it may be owned in a moment", nil, changes{unowned}, ""},
		"CloneSet gone":            {"kubectl delete --cascade=orphan", gone, changes{unowned}, orphaned},
		"CloneSet gone, and kept":  {"somebody knows", gone, changes{unowned, kept}, ""},
		"CloneSet gone, and labels changed": {
			"nothing shows which came first, and no other pod is made", gone, changes{relabelled, unowned}, orphaned},
		"another CloneSet, younger": {"it was restored, or made anew, and never had the pod", func(w *world, web *kruisev1alpha1.CloneSet) {
			w.deleteCloneSet(web)
			w.cloneSet("web", func(web *kruisev1alpha1.CloneSet) {
				web.CreationTimestamp = metav1.NewTime(testEpoch().Add(2 * time.Hour))
			})
		}, changes{relabelled, unowned}, orphaned},
		"CloneSet goes": {"its pods are let go before it is gone", func(w *world, web *kruisev1alpha1.CloneSet) {
			w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Finalizers = []string{metav1.FinalizerOrphanDependents} })
			w.must(w.api.Delete(w.Context(), web), "deleting the CloneSet")
		}, changes{relabelled, unowned}, orphaned},
		"of another kind": {"it has not the name of a CloneSet's pod", nil, changes{relabelled, unowned, unnamed}, orphaned},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		web := w.cloneSet("web")
		pod := w.servingPod(web, "web-x7k2p", instance("x7k2p"))
		if tc.set != nil {
			tc.set(w, web)
		}
		w.changePod(pod, tc.pod...)
		w.reconcile(pod)
		if tc.event == "" {
			w.expectEvents(tc.reason)
		} else {
			w.expectEvents(tc.reason, tc.event)
		}
		if tc.event == detached {
			w.expectNotInService(pod)
			w.expectHooks("nothing holds it when it is deleted", pod, "")
		} else {
			w.expectInService(pod)
		}
		w.takeJournal()
		w.reconciles(pod, "once")
		w.expectEvents("once")
	})
}

// TestUnadoptedPod: its CloneSet selects it, but does not own it, which nothing else would show.
func TestUnadoptedPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	pod := w.servingPod(web, "web-x7k2p", instance("x7k2p"))
	reads := 0
	w.unreadable = func(of runtime.Object, cached bool) error {
		if _, set := of.(*kruisev1alpha1.CloneSet); set && !cached {
			reads++
		}
		return nil
	}
	expectReads := func(why string, want int) {
		t.Helper()
		if reads != want {
			t.Errorf("the API server was asked %d times for the CloneSet, want %d: %s", reads, want, why)
		}
	}
	w.changePod(pod, unowned)
	w.expectResult("no event comes when the patience ends", w.reconcile(pod), reason.Patience)
	w.reconcile(pod) // its labels are others: no workload names the handlers any more
	w.takeJournal()
	w.expectEvents("the owner reference may be restored")
	reads = 0
	w.sleep(reason.Patience - time.Second)
	w.reconcile(pod)
	w.expectEvents("the same")
	w.sleep(time.Second)
	w.reconcile(pod)
	w.expectEvents("nothing updates the pod any more", "Warning Orphaned the pod belongs to no workload")
	w.expectInService(pod)
	w.takeJournal()
	w.reconciles(pod, "once")
	expectReads("one answer holds for as long as labels and CloneSet do", 0)

	w.changePod(pod, relabelled)
	w.reconcile(pod)
	expectReads("its labels are others", 1)
	w.expectNotInService(pod)
	w.expectEvents("the CloneSet no longer selects it", "Warning Orphaned ")
}

// TestDetachedPodStaysOut: what a person took out does not come back because something else goes.
func TestDetachedPodStaysOut(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		back   func(*world, *kruisev1alpha1.CloneSet) []func(*corev1.Pod)
	}
	expect.Each(t, map[string]row{
		"kept": {"a person wants it back", func(*world, *kruisev1alpha1.CloneSet) []func(*corev1.Pod) { return []func(*corev1.Pod){kept} }},
		"adopted": {"its labels are those of before", func(w *world, web *kruisev1alpha1.CloneSet) []func(*corev1.Pod) {
			web = w.cloneSet("web", func(now *kruisev1alpha1.CloneSet) { now.UID = web.UID })
			return []func(*corev1.Pod){func(pod *corev1.Pod) {
				pod.Labels["app"] = "web"
				pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(web, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))}
			}}
		}},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, keepsUnready)
		web := w.cloneSet("web")
		pod := w.servingPod(web, "web-x7k2p", instance("x7k2p"))
		w.changePod(pod, relabelled, unowned)
		w.reconcile(pod)
		w.expectNotInService(pod)
		w.expectEvents("it is the last one of its service, too", "Warning Orphaned ")
		w.expectWaits("it shows in the metric", Wait{Reason: "Orphaned", Since: w.clock.Now()})

		w.deleteCloneSet(web)
		w.reconcile(pod)
		w.expectNotInService(pod)
		w.restart()
		w.reconcile(pod)
		w.expectNotInService(pod)
		w.takeEvents()

		w.changePod(pod, tc.back(w, web)...)
		w.reconcile(pod)
		w.expectInService(pod)
		w.expectEvents(tc.reason, "Normal Resolved Orphaned ")
		if w.record(pod).Detached {
			t.Error("the record still has it as detached")
		}
	})
}

// TestDetachedPod_Unread: a removal rests on what was read.
func TestDetachedPod_Unread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-x7k2p", instance("x7k2p"))
	w.changePod(pod, relabelled, unowned)
	w.unreadable = fails[*kruisev1alpha1.CloneSet](false, errors.New("the API server is away"))
	w.reconcileFails(pod)
	w.expectJournal("")
	w.unreadable = nil
	w.reconcile(pod)
	w.expectNotInService(pod)
}
