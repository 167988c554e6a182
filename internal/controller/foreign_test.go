package controller

import (
	"errors"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// runsResync compares the default registry's list, with what others wrote, and looks at the pods that it names.
func (w *world) runsResync() Comparison {
	w.Helper()
	entries, err := w.registry.List(w.Context(), testCluster)
	w.must(err, "listing")
	l := w.listing(Listing{})
	for _, e := range entries {
		if e.State == registry.Foreign {
			l.Foreign = append(l.Foreign, e)
		}
	}
	w.takeJournal()
	return w.compare(l)
}

func TestApplicationThatRegistersItself(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)

	gone := w.registry.Foreign(w.instance(pod, "web", 8080))
	if got := w.runsResync(); len(got.Missing)+got.Different+len(got.Unknown) > 0 {
		t.Fatalf("resync found %+v: what others wrote is neither compared nor reaped", got)
	}
	w.expectDoubtful("the pod has to be told", pod)
	w.expectResult("a list brings the pod back, and time does", w.reconcile(pod), backoffCap)
	w.expectJournal("the registry holds what was written")
	w.expectEvents("a person has to turn it off", `Warning AlsoRegistersItself service "web" at 10.0.0.1:8080: clients are given`)

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconciles(pod, "our own entry goes", deregisters, writes)
	w.expectHooks("clients are still sent to it", pod, "inPlaceUpdate preDelete")
	w.runsResync()
	w.reconcile(pod)
	w.expectHooks("our entry is gone, and the other is listed all the same", pod, "inPlaceUpdate preDelete")

	gone()
	w.runsResync()
	w.expectDoubtful("it may go on", pod)
	w.reconciles(pod, "", writes)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestEntryOfAnotherAtAFormerAddress(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{"the list has it": false, "the registry refuses to take it out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pod := serving(t)
			former := w.instance(pod, "web", 8080)
			if refused {
				w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister}, registry.ForeignEntry(errors.New("another has it")))
			}
			w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
			w.reconcile(pod)
			w.takeEvents()

			w.registry.Foreign(former)
			w.runsResync()
			w.reconcile(pod)
			w.expectEvents("it is the entry of whichever pod has that address now")
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
			w.expectHooks("no client is sent to it", pod, "inPlaceUpdate")
		})
	}
}

func TestReadBackOfAnEntryOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{"default": {Calls: w.registry, Getter: w.registry}}
	})
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	gone := w.registry.Foreign(w.instance(pod, "web", 8080))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister}, errors.New("down"))
	w.reconcile(pod)
	w.takeJournal()
	w.takeEvents()
	w.reconcile(pod)
	w.expectHooks("clients are given it by the other entry", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", `Warning AlsoRegistersItself hook preDelete waits`)
	gone()
	w.sleep(backoffCap)
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
}
