package controller

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func TestPodThatDisappearsInService(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, draining15s)

	t.Log("Its finalizer is removed by hand and it is killed at once.")
	w.removePod(pod)
	w.registry.FailNext(anyCall(), errors.New("down"), errors.New("down"))
	w.expectResult("", w.reconcile(pod), backoffBase)
	w.expectResult("", w.reconcile(pod), 2*backoffBase)
	w.expectEvents("", "Warning RegistryUnavailable service")
	w.expectWaits("nothing of Kruise waits, and the registry is behind",
		Wait{Reason: "RegistryUnavailable", Since: w.clock.Now()})
	w.expectResult("", w.reconcile(pod), 0)
	w.expectJournal("until the registry has acknowledged; there is nothing to drain for",
		deregisters+failed, deregisters+failed, deregisters)
	w.expectAbsent(pod)
	w.expectNoPages("all is undone")
	w.expectWaits("")
	if n := w.r.backoff.NumRequeues(pod.UID); n > 0 {
		t.Errorf("the back-off still counts %d failures of a pod that is gone", n)
	}
}

func TestPodIsUndoneByItsUID(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		tell   func(w *world, old, heir *corev1.Pod)
	}{
		"deletion seen": {"a deletion, then a creation", func(w *world, old, heir *corev1.Pod) {
			w.tellGone(old)
			w.r.podEvents().Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: lifecycle.PodOf(heir)}, w.queue)
		}},
		"deletion missed": {"a watch that was broken shows both as one update", func(w *world, old, heir *corev1.Pod) {
			w.r.podEvents().Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: lifecycle.PodOf(old), ObjectNew: lifecycle.PodOf(heir)}, w.queue)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			web := w.cloneSet("web")
			old := w.servingPod(web, "web-1")
			last := w.current(old)
			w.queue.take()

			t.Log("Another pod has its name and its address.")
			w.changePod(old, func(p *corev1.Pod) { p.Finalizers = nil })
			w.deletePod(old)
			heir := w.pod(web, "web-1", func(p *corev1.Pod) { p.Status.PodIP = old.Status.PodIP })
			tc.tell(w, last, heir)
			var asked []types.UID
			for _, a := range w.queue.take() {
				asked = append(asked, a.Request.UID)
			}
			if want := []types.UID{old.UID, heir.UID}; !slices.Equal(asked, want) {
				t.Fatalf("looks at %v, want %v\nreason: %s", asked, want, tc.reason)
			}

			w.reconciles(heir, "", registers, writes)
			w.reconciles(old, "", deregisters)
			calls := w.registry.Calls(fakeregistry.Match{Op: fakeregistry.OpDeregister})
			if len(calls) != 1 || calls[0].Instance.UID != string(old.UID) {
				t.Errorf("got calls %v, want one with the mark of the pod that is gone", calls)
			}
			w.expectInService(heir)
		})
	}
}

// TestPodWithoutTheStateLabelThatHasEnded: its address may be another pod's by now, and no event tells.
func TestPodWithoutTheStateLabelThatHasEnded(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.losesLabel(pod)
	w.reconcile(pod)
	w.expectInService(pod)

	w.changePod(pod, unready, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.expectResult("the registry has yet to acknowledge", w.reconcile(pod), backoffBase)
	w.expectHooks("so nothing is released", pod, "preNormal inPlaceUpdate preDelete")
	w.takeJournal()
	w.expectResult("", w.reconcile(pod), 0)
	w.expectJournal("it does not come back, and its finalizer would hold its deletion", deregisters, writes)
	w.expectAbsent(pod)
	w.expectHooks("nothing of Rollcall's is left on it", pod, "")
	w.expectNoPages("all is undone")
}

// TestPodWithoutTheStateLabelThatWasNeverRegistered: its finalizer would hold its deletion, and no event tells of that.
func TestPodWithoutTheStateLabelThatWasNeverRegistered(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]string{"a handler": preDeleteFinalizer, "the guard": lifecycle.GuardFinalizer}, func(t *testing.T, finalizer string) {
		w, pod := born(t, guards)
		w.changePod(pod, unready, func(p *corev1.Pod) { p.Finalizers = []string{finalizer} })
		w.reconcile(pod)
		w.losesLabel(pod)
		w.takeJournal()
		w.expectResult("it lives", w.reconcile(pod), waiting.Longest)

		w.deletePod(pod)
		w.reconciles(pod, "no list shows that the manager before has not registered it", deregisters, writes)
		w.expectHooks("", pod, "gone")
		w.reconcile(pod)
		w.expectNoPages("all is undone")
	})
}

func TestPodIsGoneWithItsNamespaceAndTheRightsInIt(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.removePod(pod)
	w.unreadable = fails[*corev1.Pod](false, apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, nil))
	w.reconcileFails(pod)
	w.expectJournal("the rights in a namespace that is there may come back")
	w.must(w.api.Delete(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}), "deleting the namespace")
	w.reconciles(pod, "", deregisters)
	w.expectNoPages("all is undone")
}

func TestPodThatWasGoneBeforeTheManagerCameToIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	pod, stranger := w.servingPod(web, "web-1"), w.pod(web, "web-2")
	w.restart()
	w.removePod(pod)
	w.removePod(stranger)
	w.reconcile(pod)
	w.reconciles(stranger, "its record says that it was in service; the other has none", deregisters)
	w.expectNoPages("")
}

func TestPodThatGoesBeforeAnyCallWasMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keepsUnready)
	found := w.pod(w.cloneSet("web"), "web-1", inState(appspub.LifecycleStateNormal), unready)
	w.reconciles(found, "a pod that is not ready is kept as it is")
	w.removePod(found)
	w.reconciles(found, "another manager may have put it in service", deregisters)
	w.expectNoPages("")
}

func TestDeparturesThatCostNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unfinalized := func(c *kruisev1alpha1.CloneSet) { c.Spec.Template.Finalizers = nil } // a pod with ours is not gone before it is freed
	web := w.cloneSet("web", unfinalized)
	others := w.cloneSet("others", unfinalized, func(c *kruisev1alpha1.CloneSet) { c.Spec.Lifecycle = nil })

	unseen, never, foreign := w.bornPod(web, "web-1"), w.bornPod(web, "web-2", unready), w.bornPod(others, "others-1")
	dying := w.servingPod(web, "web-3")
	w.reconcile(never)
	w.reconcile(foreign)
	w.reconcileIn(dying, appspub.LifecycleStatePreparingDelete)
	w.takeJournal()
	w.liveReads = 0

	for _, pod := range []*corev1.Pod{unseen, never, foreign, dying} {
		w.removePod(pod)
		w.reconcile(pod)
		w.reconcile(pod)
	}
	w.expectJournal("they were never in service, or are out already")
	if w.liveReads > 0 {
		t.Errorf("%d reads from the API server, want none: a rollout deletes pods by the thousand", w.liveReads)
	}
	w.expectNoPages("no pod is left")
}

// TestEventsAndReconcilesAtOnce is for the race detector: handlers, reconciles, settings and metrics use the ledger from
// several goroutines. Whatever the order, no pod that is gone may be left in the registry or in the ledger.
func TestEventsAndReconcilesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	var wg sync.WaitGroup
	for i := range 20 {
		pod := w.pod(web, fmt.Sprintf("web-%d", i))
		reconciled := make(chan struct{})
		wg.Go(func() {
			defer close(reconciled)
			for range 5 {
				_, _ = w.r.Reconcile(t.Context(), lifecycle.PodIDOf(lifecycle.PodOf(pod)))
			}
		})
		wg.Go(func() {
			handlers := w.r.podEvents()
			handlers.Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: lifecycle.PodOf(pod)}, w.queue)
			w.removePod(pod)
			<-reconciled // the queue hands one pod to one worker at a time
			for range 5 {
				_, _ = w.r.Reconcile(t.Context(), lifecycle.PodIDOf(lifecycle.PodOf(pod)))
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			w.r.Apply(w.built())
			w.r.Waits()
			w.r.State.Workloads.Unmatched()
			w.r.enqueueAll(t.Context(), w.queue)
		}
	})
	wg.Wait()
	if entries, err := w.registry.Truth(t.Context(), testCluster); err != nil || len(entries) > 0 {
		t.Errorf("the registry holds %v (%v), want nothing", entries, err)
	}
	w.expectNoPages("all pods are gone")
}
