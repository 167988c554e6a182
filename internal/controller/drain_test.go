package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
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
	type row struct {
		reg   func(*fakeregistry.Registry) Registry
		first func(*world)
		sees  func(*world)
	}
	expect.Each(t, map[string]row{
		"by the list": {
			func(r *fakeregistry.Registry) Registry { return Registry{Calls: r} },
			func(w *world) { w.runsResync() }, func(w *world) { w.runsResync() },
		},
		"by a read back": {
			func(r *fakeregistry.Registry) Registry { return Registry{Calls: r, Getter: r} },
			fails(errors.New("down")), func(w *world) { w.sleep(waiting.Longest) },
		},
	}, func(t *testing.T, tc row) {
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

// TestDrainThatAnotherClockBegan: its other cases are rows of plan's TestDrainOf and tracker's TestRecallRemoval.
func TestDrainThatAnotherClockBegan(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, draining15s)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	began := w.record(pod).OutSince

	t.Log("The next leader's clock is 8 s ahead, and it knows that as up to 9 s.")
	w.sleep(5*time.Second + 8*time.Second)
	w.ahead = 9 * time.Second
	w.restart()
	w.takeJournal()
	w.expectResult("it may take longer, and never less", w.reconcile(pod), 11*time.Second)
	w.expectJournal("the next manager makes the call again, and the record stays", deregisters)
	w.sleep(11 * time.Second)
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
	if now := w.record(pod).OutSince; now == nil || !now.Equal(*began) {
		t.Errorf("the record says out since %v, want %v", now, began)
	}
}

func lagging1m(s *choices) { s.ReaderLags = map[string]time.Duration{"default": time.Minute} }

// TestReaderLag: since when clients can know a pod has rows in plan, and TestModel walks with a lag.
func TestReaderLag(t *testing.T) {
	t.Parallel()
	w, pod := born(t, lagging1m)
	w.expectResult("the whole of it", w.reconcile(pod), time.Minute)
	w.expectInService(pod)
	w.expectHooks("clients do not know it yet", pod, "inPlaceUpdate preDelete")
	w.expectWaits("", Wait{Hook: "preNormal", Reason: "NotEffective", Since: w.clock.Now()})
	w.sleep(time.Minute)
	w.reconciles(pod, "", registers, writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
	w.expectEvents("a lag is no news")
}

// answers is an Asker whose pods are asked at each visit, and answer what the test says.
type answers struct {
	w      *world
	next   drain.Answer
	asked  int
	asking bool
	last   drain.Answer
}

func (a *answers) Ask(q drain.Question) {
	if q.IP == "" || q.Until.Path != "/idle" {
		a.w.Errorf("the question is %+v", q)
	}
	a.asked++
	a.asking = true
	a.last = a.next
	a.last.Asked = a.w.clock.Now()
}

func (a *answers) Stop(types.UID) { a.asking = false }

func (a *answers) Last(drain.Question) drain.Answer { return a.last }

func untilIdle(s *choices) {
	s.Drain = drain.Policy{Min: 5 * time.Second, Max: 10 * time.Minute, Until: drain.Until{Port: 8080, Path: "/idle"}}
}

// drainingUntilIdle is a pod that is out of rotation, in a world whose pods are asked.
func drainingUntilIdle(t *testing.T, next drain.Answer) (*world, *corev1.Pod, *answers) {
	t.Helper()
	w, pod := serving(t, untilIdle)
	a := &answers{w: w, next: next}
	w.r.visitor.Asker = a
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectHooks("clients have not noticed yet", pod, "inPlaceUpdate preDelete")
	return w, pod, a
}

func (w *world) expectDrained(by string) {
	w.Helper()
	families, err := w.counted.Gather()
	w.must(err, "reading the metrics")
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "rollcall_drains_total" && (m.GetCounter().GetValue() == 1) != (m.GetLabel()[0].GetValue() == by) {
				w.Errorf("%g drains ended by %s, want one by %s", m.GetCounter().GetValue(), m.GetLabel()[0].GetValue(), by)
			}
		}
	}
}

func TestDrain_UntilIdle(t *testing.T) {
	t.Parallel()
	w, pod, a := drainingUntilIdle(t, drain.Answer{Left: 3})
	if a.asked > 0 {
		t.Error("the pod is asked before min")
	}
	w.sleep(5 * time.Second)
	w.takeJournal()
	w.expectResult("it is asked now, and its answer wakes it", w.reconcile(pod), 30*time.Second)
	w.sleep(time.Second)
	w.reconcile(pod)
	w.expectJournal("no answer makes a write")
	if got := w.r.Waits()[0].Message; !strings.Contains(got, "3 requests left") || !strings.Contains(got, "at most until 2026-01-02T03:14:07Z") {
		t.Errorf("the pod shows %q", got)
	}

	a.next = drain.Answer{Idle: true}
	w.reconcile(pod)
	w.expectHooks("it was asked just now", pod, "inPlaceUpdate preDelete")
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
	w.expectEvents("an idle pod is no news")
	w.expectWaited("preDelete", 6*time.Second)
	w.expectDrained("idle")
	if a.asking {
		t.Error("the pod is still asked")
	}
}
