package controller

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func inFlight(n int) func(*choices) {
	return with(func(r *Registry) { r.MaxInFlight = n })
}

// begins reconciles a pod in the background, until its call is held.
func (w *world) begins(pods ...*corev1.Pod) (ended *sync.WaitGroup) {
	w.Helper()
	ended = &sync.WaitGroup{}
	for _, pod := range pods {
		ended.Go(func() { _, _ = w.r.Reconcile(w.Context(), lifecycle.PodIDOf(pod)) })
		synctest.Wait()
	}
	return ended
}

// woken is a pod for which a slot is free, at its priority in the queue.
func woken(pod *corev1.Pod, priority int) added {
	return added{Request: lifecycle.PodIDOf(pod), Priority: priority}
}

// expectWoken holds the pods that were woken since the last look, with their priorities, against those that should be.
func (w *world) expectWoken(why string, want ...added) {
	w.Helper()
	got := slices.DeleteFunc(w.queue.take(), func(a added) bool { return a.Priority%podqueue.PriorityRollout != podqueue.PriorityWoken })
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		w.Fatalf("woken (-want +got):\n%swhy: %s", diff, why)
	}
}

func (w *world) expectSlots(why string, inUse, queued int) {
	w.Helper()
	got := w.r.settings.Load().Registries["default"].Status()
	if got.InUse != inUse || got.Queued != queued {
		w.Fatalf("%d slots in use and %d queued, want %d and %d\nwhy: %s", got.InUse, got.Queued, inUse, queued, why)
	}
}

func TestSlotsGoToRolloutsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		leaving := w.servingPod(web, "web-1")
		first, second := w.bornPod(web, "web-2"), w.bornPod(web, "web-3")
		hold := w.registry.Hold(fakeregistry.Match{Pod: "web-2"})
		ended := w.begins(first)
		began := time.Now()
		w.expectResult("it is woken, and looked at again in case it isn't", w.reconcile(second), wokenRecheck)
		if took := time.Since(began); took > 0 {
			t.Errorf("the reconcile waited for %s", took)
		}
		w.expectWaits("", Wait{Hook: "preNormal", Reason: "Queued", Since: w.clock.Now()})
		w.expectEvents("its turn will come, and no person has to look")
		w.reconcileIn(leaving, appspub.LifecycleStatePreparingDelete)
		w.expectSlots("both wait", 1, 2)
		hold.Release()
		ended.Wait()
		w.expectWoken("it came last and goes first", woken(leaving, podqueue.PriorityRollout+podqueue.PriorityWoken))
		w.reconcile(leaving)
		w.expectHooks("it was taken out", leaving, "inPlaceUpdate")
		w.expectWoken("then the other", woken(second, podqueue.PriorityWoken))
		w.reconcile(second)
		w.expectHooks("", second, "preNormal inPlaceUpdate preDelete")
		w.expectSlots("all have gone", 0, 0)
		w.expectWoken("no pod waits any more")
	})
}

func TestPodThatIsToTryAgainStillHasItsTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		pod := w.bornPod(web, "web-1")
		w.registry.FailNext(anyCall(), errors.New("down"))
		w.reconcile(pod)
		w.expectEvents("", "Warning RegistryUnavailable")
		hold := w.registry.Hold(fakeregistry.Match{Pod: "web-2"})
		ended := w.begins(w.bornPod(web, "web-2"))
		w.takeEvents()
		w.expectResult("", w.reconcile(pod), wokenRecheck)
		w.expectEvents("nothing has passed yet")
		hold.Release()
		ended.Wait()
		w.takeEvents()
		w.reconcile(pod)
		w.expectEvents("now it has", "Normal Resolved")
	})
}
