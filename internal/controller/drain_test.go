package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, draining15s)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.expectResult("", w.reconcile(pod), 15*time.Second)
	w.expectJournal("the record is written, and Kruise waits", deregisters, writes)
	w.expectHooks("clients have not noticed yet", pod, "inPlaceUpdate preDelete")

	w.sleep(5 * time.Second)
	w.expectResult("what is left of it", w.reconcile(pod), 10*time.Second)
	w.expectJournal("another event changes nothing")

	t.Log("The manager is restarted.")
	w.restart()
	w.sleep(4 * time.Second)
	w.expectResult("what is left of it", w.reconcile(pod), 6*time.Second)
	w.expectJournal("the call is made again, and the record tells since when the pod is out", deregisters)

	w.sleep(6 * time.Second)
	w.expectResult("OpenKruise may not move it on", w.reconcile(pod), reason.Patience)
	w.expectJournal("the second write", writes)
	w.expectHooks("", pod, "inPlaceUpdate")
	w.expectEvents("a drain is no news")
	w.expectWaited("preDelete", 15*time.Second)
}

// expectWaited looks for the one wait that was measured since the manager started.
func (w *world) expectWaited(hook string, want time.Duration) {
	w.Helper()
	families, err := w.counted.Gather()
	w.must(err, "reading the metrics")
	for _, family := range families {
		for _, m := range family.GetMetric() {
			h := m.GetHistogram()
			if h.GetSampleCount() == 1 && m.GetLabel()[0].GetValue() == hook && h.GetSampleSum() == want.Seconds() {
				return
			}
		}
	}
	w.Fatalf("no wait of %s for %s was measured: %v", want, hook, families)
}

// TestDrainBeginsWhenTheApplicationsOwnEntryGoes: until then clients are given the pod, whatever was acknowledged.
func TestDrainBeginsWhenTheApplicationsOwnEntryGoes(t *testing.T) {
	t.Parallel()
	fails := func(with error) func(*world) {
		return func(w *world) { w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister}, with) }
	}
	for name, tc := range map[string]struct {
		reg   func(*fakeregistry.Registry) Registry
		first func(*world)
		sees  func(*world)
	}{
		"by the list": {
			func(r *fakeregistry.Registry) Registry { return Registry{Calls: r} },
			func(w *world) { w.runsResync() }, func(w *world) { w.runsResync() },
		},
		"by a read back": {
			func(r *fakeregistry.Registry) Registry { return Registry{Calls: r, Getter: r} },
			fails(errors.New("down")), func(w *world) { w.sleep(waiting.Longest) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, draining15s)
			w.apply(func(s *choices) { s.Registries = map[string]Registry{"default": tc.reg(w.registry)} })
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			gone := w.registry.Foreign(w.instance(pod, "web", 8080))
			tc.first(w)
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
			w.sleep(time.Minute)
			w.reconcile(pod)
			w.expectHooks("our entry has gone, and clients are given the other", pod, "inPlaceUpdate preDelete")

			gone()
			tc.sees(w)
			w.expectResult("clients have not noticed yet", w.reconcile(pod), 15*time.Second)
			w.expectHooks("", pod, "inPlaceUpdate preDelete")

			t.Log("Another manager goes on with the drain.")
			w.restart()
			w.sleep(10 * time.Second)
			w.expectResult("what is left of it", w.reconcile(pod), 5*time.Second)
			w.sleep(5 * time.Second)
			w.reconcile(pod)
			w.expectHooks("", pod, "inPlaceUpdate")
		})
	}
}

func TestDrainOfAnApplicationsEntryBeginsAnewUnderAnotherManager(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t, draining15s)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectApp("", app, registry.OutOfService)
	w.sleep(10 * time.Second)

	t.Log("The application comes back while no manager is there to see it.")
	app.PutBack()
	w.restart()
	w.takeJournal()
	result := w.reconcile(pod)
	w.expectJournal("no list has such an entry, and nothing tells what its clients were given", appOut, writes)
	w.expectResult("the whole of it", result, 15*time.Second)
	w.expectHooks("", pod, "inPlaceUpdate preDelete")
}

func TestDrainThatIsMadeLongerIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, draining15s)
	waits, _ := w.audits(receipt.Waits, func() {
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		w.reconcile(pod)
		w.changePod(pod, annotated(service.AnnotationDrain, "60s"))
		w.reconcile(pod)
	})
	var drains []float64
	for _, l := range waits {
		drains = append(drains, l.Seconds)
	}
	if want := []float64{15, 60}; !slices.Equal(drains, want) {
		t.Errorf("the pod waits for drains of %v s, want %v: a receipt takes the first for overdue once it has passed", drains, want)
	}
}

func TestDrainThatAnotherClockBegan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		// ahead is how much later the new leader's clock reads, and bound what it knows of that.
		ahead, bound time.Duration
		left         time.Duration
	}{
		"the same clock":         {"it goes on where it was", 0, 0, 10 * time.Second},
		"one that is ahead":      {"5 s have passed, whatever the clock reads", 8 * time.Second, 8 * time.Second, 10 * time.Second},
		"one that is behind":     {"the same", -3 * time.Second, -3 * time.Second, 10 * time.Second},
		"a bound that is loose":  {"it may take longer, and never less", 8 * time.Second, 9 * time.Second, 11 * time.Second},
		"nothing is known":       {"it begins anew", 8 * time.Second, time.Hour, 15 * time.Second},
		"one that is far behind": {"the record is of the future, and no pod waits for longer than a drain", -1000 * time.Hour, 0, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pod := serving(t, draining15s)
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
			began := w.record(pod).OutSince
			w.sleep(5*time.Second + tc.ahead)
			w.ahead = tc.bound
			w.restart()
			w.takeJournal()
			w.expectResult(tc.reason, w.reconcile(pod), tc.left)
			w.expectJournal("the next manager makes the call again, and the record stays", deregisters)
			w.sleep(tc.left)
			w.reconcile(pod)
			w.expectHooks(tc.reason, pod, "inPlaceUpdate")
			if now := w.record(pod).OutSince; now == nil || !now.Equal(*began) {
				t.Errorf("the record says out since %v, want %v", now, began)
			}
		})
	}
}

// TestDrainOfAPodThatWasPutBack: the list that has it in rotation came after another manager's record, whatever that one's clock read.
func TestDrainOfAPodThatWasPutBack(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"the same clock": 0, "one that is behind": -time.Hour, "one that is ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pod := serving(t, draining15s)
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
			w.must(w.registry.Register(t.Context(), w.instance(pod, "web", 8080)), "putting it back")
			w.sleep(5*time.Second + ahead)
			w.ahead = ahead
			w.restart()
			w.resync(Listing{})
			w.expectResult("the drain begins again", w.reconcile(pod), 15*time.Second)
		})
	}
}

func lagging1m(s *choices) { s.ReaderLags = map[string]time.Duration{"default": time.Minute} }

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

// TestNoPodLeavesBeforeTheReadersKnowTheNextPlace: clients of the old registry notice at once, those of the new one lag.
func TestNoPodLeavesBeforeTheReadersKnowTheNextPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.apply(func(s *choices) {
		s.DefaultRegistries = []string{"new"}
		s.ReaderLags = map[string]time.Duration{"new": time.Minute}
	})
	w.expectResult("clients of the new registry do not know it yet", w.reconcile(pod), time.Minute)
	w.expectJournal("until then they would find it nowhere", "new: "+registers, writes)
	w.expectInService(pod)
	w.sleep(time.Minute)
	w.reconciles(pod, "now they do", deregisters, writes)
}
