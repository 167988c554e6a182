package controller

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// warming has pods of weight 200 warm up for 100 s: ten steps of 10 s.
func warming(s *choices) {
	weight, err := service.ParseValueTemplate("200")
	if err != nil {
		panic(err)
	}
	s.Services.Metadata, s.Services.WarmUp = map[string]service.ValueTemplate{"weight": weight}, 100*time.Second
}

func warmingToEnd(s *choices) {
	warming(s)
	s.Services.CountsAtEnd = true
}

func TestWeightGrowsInTenSteps(t *testing.T) {
	t.Parallel()
	w, pod := born(t, warming)
	w.reconciles(pod, "to warm up holds no hook, and its beginning is in the write that was due anyway", registers, writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	got := []int{w.weight(pod)}
	after := w.reconcile(pod).RequeueAfter
	w.expectJournal("nothing has grown yet")
	for after > 0 {
		w.sleep(after)
		after = w.reconcile(pod).RequeueAfter
		w.expectJournal("a step is one call, and no write", registers)
		got = append(got, w.weight(pod))
	}
	if diff := cmp.Diff([]int{2, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200}, got); diff != "" {
		t.Errorf("the weights (-want +got):\n%s", diff)
	}
	w.sleep(time.Hour)
	w.reconciles(pod, "it is warm")
}

// TestWarmUpContinues: the weight at each moment has rows in service, and the moment in which it begins in plan.
func TestWarmUpContinues(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		happens func(w *world, pod *corev1.Pod)
		want    int
	}
	expect.Each(t, map[string]row{
		"under a new leader": {"the record has when it began", func(w *world, _ *corev1.Pod) { w.restart() }, 80},
		"while the pod is kept unready": {"it never left the rotation", func(w *world, pod *corev1.Pod) {
			w.changePod(pod, unready)
			w.reconcile(pod)
			w.changePod(pod, ready)
		}, 80},
		"until the pod says otherwise": {"the annotation wins", func(w *world, pod *corev1.Pod) {
			w.changePod(pod, annotated(service.AnnotationWarmUp, "50s"))
		}, 160},
		"again after an in-place update": {"its container was started again", func(w *world, pod *corev1.Pod) {
			w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
			w.reconcileIn(pod, appspub.LifecycleStateUpdating)
			w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
		}, 2},
		"again after the pod was taken out": {"clients come back all together", func(w *world, pod *corev1.Pod) {
			w.apply(func(s *choices) { s.PanicThreshold = 100 })
			w.changePod(pod, unready)
			w.reconcile(pod)
			w.expectNotInService(pod)
			w.changePod(pod, ready)
		}, 2},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, warming, keepsUnready)
		pod := w.servingPod(w.cloneSet("web"), "web-1")
		w.sleep(40 * time.Second)
		w.reconcile(pod)
		tc.happens(w, pod)
		w.reconcile(pod)
		w.expectInService(pod)
		if got := w.weight(pod); got != tc.want {
			t.Errorf("the weight is %d, want %d\nreason: %s", got, tc.want, tc.reason)
		}
	})
}

func TestWarmUpThatCountsAtItsEnd(t *testing.T) {
	t.Parallel()
	w, pod := born(t, warmingToEnd)
	w.reconciles(pod, "when it began must be known to the next leader", registers, writes)
	w.expectHooks("OpenKruise waits", pod, "inPlaceUpdate preDelete")
	w.sleep(50 * time.Second)
	w.restart()
	w.reconcile(pod)
	w.expectHooks("half of its weight is not all", pod, "inPlaceUpdate preDelete")
	w.expectEvents("it is part of any rollout")
	if got := w.r.Waits(); len(got) != 1 || got[0].Reason != "WarmingUp" || got[0].Hook != string(lifecycle.PreNormal) {
		t.Errorf("it waits for %+v", got)
	}
	w.sleep(50 * time.Second)
	w.reconcile(pod)
	w.expectHooks("it has its weight", pod, "preNormal inPlaceUpdate preDelete")
}

func TestStepsGoLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, warming, with(func(r *Registry) { r.MaxInFlight = 1 }))
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	hold := w.registry.Hold(fakeregistry.Match{Op: fakeregistry.OpRegister, Service: "api"})
	slow, other := w.bornPod(w.cloneSet("api"), "api-1"), w.bornPod(w.cloneSet("db"), "db-1")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		w.reconcile(slow)
	}()
	w.must(hold.AwaitReached(t.Context(), 1), "waiting for a call that is slow")
	w.sleep(10 * time.Second)
	for _, p := range []*corev1.Pod{pod, other} {
		w.reconcile(p)
	}
	w.queue.take()
	hold.Release()
	<-answered
	if woken := w.queue.take(); len(woken) == 0 || woken[0].Request != lifecycle.PodIDOf(lifecycle.PodOf(other)) {
		t.Errorf("woken are %v, want the pod first that is yet to be registered", woken)
	}
}

// TestWarmUpThatCannotBe: in a registry without weights the calls would change nothing.
func TestWarmUpThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, warming, func(s *choices) { s.Services.WarmUp, s.Weightless = 0, map[string]bool{"default": true} })
	pod := w.bornPod(w.cloneSet("web"), "web-1", annotated(service.AnnotationWarmUp, "2m"))
	w.reconcile(pod)
	w.expectNotInService(pod)
	w.expectEventWith("Warning InvalidPod hook preNormal waits: ", `registry "default" has no weights`)
}

// weight is what clients are given of the pod.
func (w *world) weight(pod *corev1.Pod) int {
	w.Helper()
	entries, err := w.registry.Truth(context.WithoutCancel(w.Context()), testCluster)
	w.must(err, "reading the registry")
	for _, e := range entries {
		if e.UID == string(pod.UID) {
			return e.Weight
		}
	}
	return 0
}
