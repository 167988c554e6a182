package controller

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/service"
)

func lagging1m(s *choices) { s.ReaderLag = map[string]time.Duration{"default": time.Minute} }

func TestReaderLag(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcileIn(pod, appspub.LifecycleStateUpdating, unready)
	w.apply(lagging1m)
	w.takeJournal()
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated, ready)

	w.expectResult("the whole of it", w.reconcile(pod), time.Minute)
	w.expectInService(pod)
	w.expectHooks("clients do not know it yet", pod, "preDelete")
	w.expectWaits("", Wait{Hook: "inPlaceUpdate", Reason: "ReadersLag", Since: w.clock.Now()})

	w.takeJournal()
	w.sleep(40 * time.Second)
	w.expectResult("what is left of it", w.reconcile(pod), 20*time.Second)
	w.expectJournal("another event changes nothing")

	t.Log("The pod turns unready and ready again.")
	w.changePod(pod, unready)
	w.reconcile(pod)
	w.changePod(pod, ready)
	w.expectResult("clients have to notice again", w.reconcile(pod), time.Minute)

	t.Log("The manager is restarted.")
	w.restart()
	w.sleep(30 * time.Second)
	w.takeJournal()
	w.expectResult("nothing tells it since when they can know", w.reconcile(pod), time.Minute)
	w.expectJournal("", registers)

	w.sleep(time.Minute)
	w.reconciles(pod, "", writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
	w.expectEvents("a lag is no news")
}

func TestReaderLagHoldsBackNoOther(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, func(s *choices) { s.ReaderLag = map[string]time.Duration{"elsewhere": time.Minute} })
	w.expectHooks("it is another registry's", pod, "preNormal inPlaceUpdate preDelete")

	w.apply(lagging1m)
	w.changePod(pod, annotated(service.AnnotationWeight, "20"))
	w.expectResult("Kruise waits for nothing in Normal", w.reconcile(pod), 0)

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectHooks("who goes out waits for its drain alone", pod, "inPlaceUpdate")
}

// TestNoPodLeavesBeforeTheReadersKnowTheNextPlace: clients of the old registry notice at once, those of the new one lag.
func TestNoPodLeavesBeforeTheReadersKnowTheNextPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.apply(func(s *choices) {
		s.DefaultRegistries = []string{"new"}
		s.ReaderLag = map[string]time.Duration{"new": time.Minute}
	})
	w.expectResult("clients of the new registry do not know it yet", w.reconcile(pod), time.Minute)
	w.expectJournal("until then they would find it nowhere", "new: "+registers, writes)
	w.expectInService(pod)
	w.sleep(time.Minute)
	w.reconciles(pod, "now they do", deregisters, writes)
}
