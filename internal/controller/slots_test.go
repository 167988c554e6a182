package controller

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func inFlight(n int) func(*choices) {
	return func(s *choices) {
		one := s.Registries["default"]
		one.MaxInFlight = n
		s.Registries = map[string]Registry{"default": one}
	}
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
	w.queue.take()
	w.r.enqueueWoken(w.Context(), w.queue)
	if diff := cmp.Diff(want, w.queue.take()); diff != "" {
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

func TestOneSlowServiceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(4))
		slow, web := w.cloneSet("slow"), w.cloneSet("web")
		hold := w.registry.Hold(fakeregistry.Match{Service: "slow"})
		ended := w.begins(w.bornPod(slow, "slow-1"), w.bornPod(slow, "slow-2"))
		third, pod := w.bornPod(slow, "slow-3"), w.bornPod(web, "web-1")

		began := time.Now()
		w.expectResult("it is woken, and looked at again in case it isn't", w.reconcile(third), wokenRecheck)
		if took := time.Since(began); took > 0 {
			t.Errorf("the reconcile waited for %s", took)
		}
		w.expectWaits("half of the slots are for one service", Wait{Hook: "preNormal", Reason: "Queued", Since: testEpoch()})
		w.expectEvents("its turn will come, nobody has to look")
		w.reconcile(pod)
		w.expectHooks("another service goes on", pod, "preNormal inPlaceUpdate preDelete")

		hold.Release()
		ended.Wait()
		w.expectWoken("exactly the one that waits", woken(third, wokenPriority))
		w.reconcile(third)
		w.expectHooks("", third, "preNormal inPlaceUpdate preDelete")
		w.expectSlots("all have gone", 0, 0)
		w.expectWoken("nobody waits any more")
	})
}

func TestWhatARolloutWaitsForHasTheFirstTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		leaving := w.servingPod(web, "web-1")
		first, second := w.bornPod(web, "web-2"), w.bornPod(web, "web-3")
		hold := w.registry.Hold(fakeregistry.Match{Pod: "web-2"})
		ended := w.begins(first)
		w.reconcile(second)
		w.kruiseMoves(leaving, appspub.LifecycleStatePreparingDelete)
		w.reconcile(leaving)
		w.expectSlots("both wait", 1, 2)
		hold.Release()
		ended.Wait()
		w.expectWoken("it came last and goes first", woken(leaving, rolloutPriority+wokenPriority))
		w.reconcile(leaving)
		w.expectHooks("it was taken out", leaving, "inPlaceUpdate")
		w.expectWoken("then the other", woken(second, wokenPriority))
	})
}

func TestARefusedCallWasNeverMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		pod := w.bornPod(web, "web-1")
		hold := w.registry.Hold(fakeregistry.Match{Pod: "web-2"})
		ended := w.begins(w.bornPod(web, "web-2"))
		w.reconcile(pod)
		w.changePod(pod, unready)
		w.takeJournal()
		w.reconcile(pod)
		w.expectJournal("the registry has never heard of it")
		hold.Release()
		ended.Wait()
		w.expectWoken("it is looked at, and needs no call any more", woken(pod, wokenPriority))
	})
}

func TestAPodThatIsToTryAgainStillHasItsTrouble(t *testing.T) {
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

// many are pods of several services that wait to be registered.
func (w *world) many(services, each int) (pods []*corev1.Pod) {
	w.Helper()
	for s := range services {
		name := fmt.Sprintf("web%d", s)
		of := w.cloneSet(name)
		for i := range each {
			pods = append(pods, w.bornPod(of, fmt.Sprintf("%s-%d", name, i)))
		}
	}
	return pods
}

// answersTurns is a queue that reconciles each pod whose turn has come, and those whose back-off has passed, for a while.
func (w *world) answersTurns(pods []*corev1.Pod, d time.Duration) {
	w.Helper()
	byRequest := map[lifecycle.PodID]*corev1.Pod{}
	again := map[lifecycle.PodID]time.Time{}
	for _, pod := range pods {
		byRequest[lifecycle.PodIDOf(pod)] = pod
		again[lifecycle.PodIDOf(pod)] = time.Now()
	}
	look := func(req lifecycle.PodID) {
		result := w.reconcile(byRequest[req])
		delete(again, req)
		if result.RequeueAfter > 0 {
			again[req] = time.Now().Add(result.RequeueAfter)
		}
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		for id := range w.r.woken.take() {
			look(id)
		}
		for req, at := range again {
			if !at.After(time.Now()) {
				look(req)
			}
		}
	}
}

func TestARegistryThatIsDownIsNotHammered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(8))
		pods := w.many(4, 5)
		mend := w.registry.Fail(anyCall(), errors.New("connection refused"))
		w.answersTurns(pods, time.Minute)
		// Five that fail, and then one every five seconds.
		if calls := len(w.registry.Calls(anyCall())); calls < 10 || calls > 5+60/5 {
			t.Errorf("%d calls in a minute, want a probe every five seconds", calls)
		}
		w.expectEvents("one for each, however often it tries", repeated(len(pods), "Warning RegistryUnavailable")...)

		mend()
		w.registry.Reset()
		w.answersTurns(pods, 10*time.Second)
		for _, pod := range pods {
			w.expectHooks("the registry is back", pod, "preNormal inPlaceUpdate preDelete")
		}
		w.expectSlots("all have gone", 0, 0)
	})
}

func repeated(n int, text string) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = text
	}
	return texts
}

func TestWhatAnOpenBreakerSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(8))
		pods := w.many(2, 4)
		w.registry.Fail(anyCall(), errors.New("connection refused"))
		for _, pod := range pods[:6] {
			w.reconcile(pod)
		}
		w.takeEvents()
		opened := time.Now()
		w.reconcile(pods[6])
		w.expectEvents("a person should know that nobody asks, why, since when and until when", fmt.Sprintf(
			`Warning RegistryUnavailable hook preNormal waits: service "web1" at 10.0.0.7:8080: no call is made: the circuit `+
				`breaker is open since %s, tries one call at %s, and then every 5 s; the last failure: connection refused`,
			opened.Format(time.RFC3339), opened.Add(5*time.Second).Format(time.RFC3339)))
	})
}

func TestAPanicFreesTheSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inFlight(2))
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.OnAnswer(anyCall(), func(fakeregistry.Call) { panic("a driver's error") })
	func() {
		defer func() { _ = recover() }()
		_, _ = w.r.Reconcile(w.Context(), lifecycle.PodIDOf(pod))
	}()
	w.expectSlots("the reconciler goes on after a panic", 0, 0)
}

func TestADeletionThatIsCancelledBeforeItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		pod, other := w.servingPod(web, "web-1"), w.bornPod(web, "web-2")
		hold := w.registry.Hold(fakeregistry.Match{Pod: "web-2"})
		ended := w.begins(other)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.reconcile(pod)
		w.kruiseMoves(pod, appspub.LifecycleStateNormal)
		hold.Release()
		ended.Wait()
		w.takeJournal()
		w.reconcile(pod)
		w.expectJournal("nobody kept it alive since it was to go", registers)
		if held := w.r.Tracker.Kept("default"); len(held) != 2 {
			t.Errorf("%d instances are kept alive, want both", len(held))
		}
	})
}
