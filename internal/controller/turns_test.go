package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// begins reconciles a pod in the background, until its call is held.
func (w *world) begins(pods ...*corev1.Pod) (ended *sync.WaitGroup) {
	w.Helper()
	ended = &sync.WaitGroup{}
	for _, pod := range pods {
		ended.Go(func() { _, _ = w.r.Reconcile(w.Context(), requestFor(pod)) })
		synctest.Wait()
	}
	return ended
}

// expectTurns holds the pods that were woken since the last look, with their priorities, against those that should be.
func (w *world) expectTurns(why string, want ...turn) {
	w.Helper()
	if diff := cmp.Diff(want, w.r.turns.take(), cmp.AllowUnexported(turn{})); diff != "" {
		w.Fatalf("turns (-want +got):\n%swhy: %s", diff, why)
	}
}

func (w *world) expectSlots(why string, inUse, queued int) {
	w.Helper()
	got := w.settings.Registries["default"].Status()
	if got.InUse != inUse || got.Queued != queued {
		w.Fatalf("%d slots in use and %d queued, want %d and %d\nwhy: %s", got.InUse, got.Queued, inUse, queued, why)
	}
}

func TestOneSlowServiceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(4))
		slow, web := w.cloneSet("slow"), w.cloneSet("web")
		hold := w.registry.Hold(registrytest.Match{Service: "slow"})
		ended := w.begins(w.bornPod(slow, "slow-1"), w.bornPod(slow, "slow-2"))
		third, pod := w.bornPod(slow, "slow-3"), w.bornPod(web, "web-1")

		began := time.Now()
		w.expectResult("it is woken, and looked at again in case it isn't", w.reconcile(third), turnRecheck)
		if took := time.Since(began); took > 0 {
			t.Errorf("the reconcile waited for %s", took)
		}
		w.expectWaits("half of the slots are for one service", Wait{Hook: "preNormal", Reason: "Queued", Since: testEpoch()})
		w.expectEvents("its turn will come, nobody has to look")
		w.reconcile(pod)
		w.expectHooks("another service goes on", pod, "preNormal inPlaceUpdate preDelete")

		hold.Release()
		ended.Wait()
		w.expectTurns("exactly the one that waits", turn{Request: requestFor(third), priority: turnAhead})
		w.reconcile(third)
		w.expectHooks("", third, "preNormal inPlaceUpdate preDelete")
		w.expectSlots("all have gone", 0, 0)
		w.expectTurns("nobody waits any more")
	})
}

func TestWhatARolloutWaitsForHasTheFirstTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		leaving := w.servingPod(web, "web-1")
		first, second := w.bornPod(web, "web-2"), w.bornPod(web, "web-3")
		hold := w.registry.Hold(registrytest.Match{Pod: "web-2"})
		ended := w.begins(first)
		w.reconcile(second)
		w.kruiseMoves(leaving, appspub.LifecycleStatePreparingDelete)
		w.reconcile(leaving)
		w.expectSlots("both wait", 1, 2)
		hold.Release()
		ended.Wait()
		w.expectTurns("it came last and goes first", turn{Request: requestFor(leaving), priority: rolloutPriority + turnAhead})
		w.reconcile(leaving)
		w.expectHooks("it was taken out", leaving, "inPlaceUpdate")
		w.expectTurns("then the other", turn{Request: requestFor(second), priority: turnAhead})
	})
}

func TestARefusedCallWasNeverMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		pod := w.bornPod(web, "web-1")
		hold := w.registry.Hold(registrytest.Match{Pod: "web-2"})
		ended := w.begins(w.bornPod(web, "web-2"))
		w.reconcile(pod)
		w.changePod(pod, unready)
		w.takeJournal()
		w.reconcile(pod)
		w.expectJournal("the registry has never heard of it")
		hold.Release()
		ended.Wait()
		w.expectTurns("it is woken in vain", turn{Request: requestFor(pod), priority: turnAhead})
		w.takeJournal()
		w.reconcile(pod)
		w.expectJournal("it needs no call any more")
		w.expectSlots("and keeps no slot", 0, 0)
	})
}

func TestAPodThatIsGoneHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		pod, next := w.bornPod(web, "web-1"), w.bornPod(web, "web-2")
		hold := w.registry.Hold(registrytest.Match{Pod: "web-3"})
		ended := w.begins(w.bornPod(web, "web-3"))
		w.reconcile(pod)
		w.reconcile(next)
		w.removePod(pod)
		w.reconcile(pod)
		hold.Release()
		ended.Wait()
		w.expectTurns("it is the first", turn{Request: requestFor(pod), priority: turnAhead})
		w.reconcile(pod)
		time.Sleep(time.Second)
		synctest.Wait()
		w.expectTurns("it made no call", turn{Request: requestFor(next), priority: turnAhead})
		w.reconcile(next)
		w.expectSlots("all have gone", 0, 0)
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
		hold := w.registry.Hold(registrytest.Match{Pod: "web-2"})
		ended := w.begins(w.bornPod(web, "web-2"))
		w.takeEvents()
		w.expectResult("", w.reconcile(pod), turnRecheck)
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
	byRequest := map[Request]*corev1.Pod{}
	again := map[Request]time.Time{}
	for _, pod := range pods {
		byRequest[requestFor(pod)] = pod
		again[requestFor(pod)] = time.Now()
	}
	look := func(req Request) {
		result := w.reconcile(byRequest[req])
		delete(again, req)
		if result.RequeueAfter > 0 {
			again[req] = time.Now().Add(result.RequeueAfter)
		}
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		for _, come := range w.r.turns.take() {
			look(come.Request)
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

func TestProbesNeedSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inspector := &inspecting{why: errors.New("the check has not passed")}
		w := newWorld(t, inFlight(2), probedBy(inspector))
		pods := w.many(1, 8)
		for range 2 { // the second time they are only asked for, and no answer to a call lies in between
			for _, pod := range pods {
				w.reconcile(pod)
			}
		}
		if got := w.settings.Registries["default"].Status(); got.Breaker != "closed" || got.InUse != 0 {
			t.Errorf("got %+v: an instance that is not checked yet says nothing of the registry", got)
		}
		web := w.cloneSet("web0b")
		hold := w.registry.Hold(registrytest.Match{Service: "web0b"})
		ended := w.begins(w.bornPod(web, "web0b-1"))
		asked := inspector.asked
		other := w.cloneSet("other")
		ended2 := w.begins(w.bornPod(other, "other-1")) // registered, and then asked for
		if inspector.asked != asked+1 {
			t.Errorf("asked %d times, want once: there is a slot", inspector.asked-asked)
		}
		ended2.Wait()
		hold.Release()
		ended.Wait()
		w.r.turns.take()
	})
}

func TestComingTurnsAreLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		web := w.cloneSet("web")
		one, other := requestFor(w.pod(web, "web-1")), requestFor(w.pod(web, "web-2"))
		w.r.turns.add(turn{Request: one, priority: 50}) // before anybody listens
		ctx, stop := context.WithCancel(t.Context())
		w.must(w.r.comingTurns(ctx, w.queue), "starting to watch for turns")
		synctest.Wait()
		w.r.turns.add(turn{Request: other, priority: 150})
		synctest.Wait()
		want := []added{{Request: one, Priority: 50}, {Request: other, Priority: 150}}
		if diff := cmp.Diff(want, w.queue.take()); diff != "" {
			t.Errorf("looked at (-want +got):\n%s", diff)
		}
		stop()
		synctest.Wait()
	})
}

func TestMoreSlotsWakeThePodsThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		pod := w.bornPod(web, "web-1")
		hold := w.registry.Hold(registrytest.Match{Pod: "web-2"})
		ended := w.begins(w.bornPod(web, "web-2"))
		w.reconcile(pod)
		w.settings.Registries["default"].SetMaxInFlight(4)
		w.expectTurns("there is a slot", turn{Request: requestFor(pod), priority: turnAhead})
		w.reconcile(pod)
		w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
		hold.Release()
		ended.Wait()
	})
}

func TestAPanicFreesTheSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inFlight(2))
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.OnAnswer(anyCall(), func(registrytest.Call) { panic("a driver's error") })
	func() {
		defer func() { _ = recover() }()
		_, _ = w.r.Reconcile(w.Context(), requestFor(pod))
	}()
	w.expectSlots("the reconciler goes on after a panic", 0, 0)
}

func TestADeletionThatIsCancelledBeforeItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inFlight(2))
		web := w.cloneSet("web")
		pod, other := w.servingPod(web, "web-1"), w.bornPod(web, "web-2")
		hold := w.registry.Hold(registrytest.Match{Pod: "web-2"})
		ended := w.begins(other)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.reconcile(pod)
		w.kruiseMoves(pod, appspub.LifecycleStateNormal)
		hold.Release()
		ended.Wait()
		w.takeJournal()
		w.reconcile(pod)
		w.expectJournal("nobody kept it alive since it was to go", registers)
		if held := w.r.Held("default"); len(held) != 2 {
			t.Errorf("%d instances are kept alive, want both", len(held))
		}
	})
}
