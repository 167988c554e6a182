package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const (
	registers   = "Register web@10.0.0.1:8080"
	failsOver   = "FailOver web@10.0.0.1:8080"
	deregisters = "Deregister web@10.0.0.1:8080"
	writes      = "write web-1"
	failed      = " failed"
)

func anyCall() fakeregistry.Match { return fakeregistry.Match{} }

func draining15s(s *choices) { s.Drain = drain.Fixed(15 * time.Second) }

func (w *world) instance(pod *corev1.Pod, service string, port int) registry.Instance {
	return registry.Instance{
		Service: service, Address: pod.Status.PodIP, Port: port,
		Cluster: testCluster, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Registry: "default",
	}
}

// TestLifeInServiceAndOut holds what a rollout costs as well: a call and a write for each pod that has to join or leave.
func TestLifeInServiceAndOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", unready)

	w.reconciles(pod, "a pod that was never in service costs nothing while it starts")

	w.changePod(pod, ready)
	w.reconciles(pod, "one call, then one write", registers, writes)
	w.expectHooks("Kruise may go on once the pod is in", pod, "preNormal inPlaceUpdate preDelete")
	w.reconciles(pod, "the event of our own write costs nothing")

	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.reconciles(pod, "what was acknowledged is not asked for again")

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconciles(pod, "one call, then one write", failsOver, writes)
	w.expectHooks("Kruise may update it", pod, "preDelete")
	w.reconciles(pod, "nor does this one's")

	w.reconcileIn(pod, appspub.LifecycleStateUpdating, unready)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.reconciles(pod, "it stays out, and nothing has to be said or written")

	w.changePod(pod, ready)
	w.reconciles(pod, "one call, then one write", registers, writes)
	w.expectHooks("the update is over", pod, "preNormal inPlaceUpdate preDelete")
	w.reconciles(pod, "nor does this one's")

	w.reconcileIn(pod, appspub.LifecycleStateNormal)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconciles(pod, "one call, then one write", deregisters, writes)
	w.expectHooks("Kruise may delete it, and must wait again should it change its mind", pod, "inPlaceUpdate")
	w.expectAbsent(pod)
	w.reconciles(pod, "nor does this one's")
	if w.liveReads > 0 {
		w.Errorf("%d reads from the API server, want none", w.liveReads)
	}

	w.removePod(pod)
	w.reconciles(pod, "nothing is left to say")
	w.expectNoPages("the pod is gone")
	w.expectEvents("a healthy life is no news")
}

// writeRecord writes a record onto the pod, as a tenant or another manager may.
func (w *world) writeRecord(pod *corev1.Pod, record lifecycle.Record) {
	w.Helper()
	text, err := json.Marshal(record)
	w.must(err, "encoding the record")
	w.changePod(pod, annotated(lifecycle.AnnotationRecord, string(text)))
}

// TestPodThatWasNeverInService: what shows that has rows in plan.
func TestPodThatWasNeverInService(t *testing.T) {
	t.Parallel()
	const none, taken = "", deregisters
	type row struct {
		reason string
		given  func(*world) *corev1.Pod
		want   string
	}
	expect.Each(t, map[string]row{
		"new, and the registry was listed": {
			"it came under our eyes, and no leader before us has registered it: no call, no drain",
			func(w *world) *corev1.Pod { w.resync(Listing{}); return w.newPod() }, none,
		},
		"new, and the registry was never listed": {
			"our watch may have lagged when we began to lead: another leader can have registered it and died",
			func(w *world) *corev1.Pod { return w.newPod() }, taken,
		},
		"new, and what is listed may be older than our lead": {
			"so may what a leader before us did",
			func(w *world) *corev1.Pod { w.resync(Listing{Staleness: time.Minute}); return w.newPod() }, taken,
		},
		"first seen on its way out": {
			"a DaemonSet's has a state only then, and its application may have been registered for long",
			func(w *world) *corev1.Pod {
				w.resync(Listing{})
				return w.bornPod(w.cloneSet("web"), "web-1", unready, inState(appspub.LifecycleStatePreparingDelete))
			}, taken,
		},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, draining15s)
		pod := tc.given(w)
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		if tc.want == none {
			w.expectJournal(tc.reason, writes)
			w.expectHooks(tc.reason, pod, "inPlaceUpdate")
			return
		}
		w.expectJournal(tc.reason, tc.want, writes)
		w.expectHooks(tc.reason, pod, "inPlaceUpdate preDelete")
	})
}

// newPod is one that comes under our eyes, and that we have looked at before it is ready.
func (w *world) newPod() *corev1.Pod {
	w.Helper()
	pod := w.bornPod(w.cloneSet("web"), "web-1", unready)
	w.reconciles(pod, "it is in no registry, and is not ready")
	return pod
}

func twoServices(web *kruisev1alpha1.CloneSet) {
	web.Spec.Template.Annotations = map[string]string{service.AnnotationServices: "admin=9090,web=8080"}
}

func TestRotatedCredentialsMoveNoPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	w.apply(func(s *choices) { s.use(w.registry) })
	web := w.cloneSet("web")
	serving, drains := w.servingPod(web, "web-1"), w.servingPod(web, "web-2")
	late, refused := w.servingPod(web, "web-3"), w.servingPod(web, "web-4")
	w.kruiseMoves(drains, appspub.LifecycleStatePreparingUpdate)
	w.expectResult("the drain begins", w.reconcile(drains), 15*time.Second)
	w.changePod(late, annotated(service.AnnotationMetadata, "weight=10"))
	w.changePod(refused, annotated(service.AnnotationMetadata, "weight=10"))
	w.registry.FailNext(anyCall(), context.DeadlineExceeded, registry.RetryAfter(errors.New("bad token"), time.Hour))
	w.reconcile(late)
	w.expectResult("the registry has said when", w.reconcile(refused), time.Hour)

	rotated := fakeregistry.New(w.backend)
	w.apply(func(s *choices) { s.use(rotated) })
	w.sleep(5 * time.Second)
	w.reconcile(serving)
	w.expectResult("the drain goes on", w.reconcile(drains), 10*time.Second)
	if made := rotated.Calls(anyCall()); len(made) > 0 {
		t.Errorf("got calls %v: what the servers have acknowledged is as true as before", made)
	}
	w.reconcile(refused)
	if made := rotated.Calls(anyCall()); len(made) != 1 {
		t.Errorf("got calls %v, want one: what the servers said of when to come back, they said to who showed the old token", made)
	}
	w.kruiseMoves(late, appspub.LifecycleStatePreparingDelete)
	w.expectResult("a Register of the retired client can still land", w.reconcile(late), 2*testTimeout-6*time.Second)
	w.expectHooks("", late, "inPlaceUpdate preDelete")
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	doubling := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}
	wrapped := func(err error) error { return fmt.Errorf("calling: %w", err) }
	type row struct {
		reason string
		err    error
		want   []time.Duration
		event  string
	}
	expect.Each(t, map[string]row{
		"retryable": {"it doubles from its base, however many services fail", errors.New("down"), doubling, "Warning RegistryUnavailable "},
		"timed out": {"it may have happened, and is tried again like what failed", context.DeadlineExceeded, doubling,
			"Warning RegistryUnavailable "},
		"cancelled": {"the driver has, and the manager does not stop", wrapped(context.Canceled), doubling,
			"Warning RegistryUnavailable "},
		"terminal": {"trying again at once is useless, and nothing is ever given up",
			wrapped(registry.Terminal(errors.New("bad credentials"))), []time.Duration{30 * time.Second, 30 * time.Second},
			"Warning RegistryRefused "},
		"told when": {"the registry knows best", wrapped(registry.RetryAfter(errors.New("busy"), 42*time.Second)),
			[]time.Duration{42 * time.Second}, "Warning RegistryUnavailable "},
		"told at once": {"no registry makes us spin", registry.RetryAfter(errors.New("busy"), 0), doubling,
			"Warning RegistryUnavailable "},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		pod := w.bornPod(w.cloneSet("web", twoServices), "web-1")
		w.registry.Fail(anyCall(), tc.err)
		for _, want := range tc.want {
			w.expectResult(tc.reason, w.reconcile(pod), want)
		}
		w.expectEvents("one Event for one reason, not one for each try", tc.event)
		w.expectHooks("the registry has not acknowledged", pod, "inPlaceUpdate preDelete")
	})
}

func TestRetryAfterHoldsBackEventsToo(t *testing.T) {
	t.Parallel()
	w, pod := born(t)
	w.registry.FailNext(anyCall(), registry.RetryAfter(errors.New("busy"), 42*time.Second))
	w.reconcile(pod)
	w.sleep(time.Second)
	w.changePod(pod, annotated(service.AnnotationMetadata, "weight=10"))
	w.expectResult("what is left of the time", w.reconcile(pod), 41*time.Second)
	w.expectJournal("the pod changed, and the registry is as busy as it was", registers+failed)
	w.expectEvents("one reason, one Event", "Warning RegistryUnavailable ")

	w.sleep(41 * time.Second)
	w.reconciles(pod, "", registers, writes)
}

func TestBackOffIsCappedAndForgotten(t *testing.T) {
	t.Parallel()
	w, pod := born(t)
	stop := w.registry.Fail(anyCall(), errors.New("down"))
	for range 15 {
		if after := w.reconcile(pod).RequeueAfter; after > 30*time.Second {
			t.Fatalf("comes back after %s, want 30s at most: a pod that waits is capacity that is missing", after)
		}
	}
	w.expectResult("", w.reconcile(pod), 30*time.Second)
	stop()
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.expectResult("what was overcome does not count any more", w.reconcile(pod), backoffBase)
}

// TestManyEntriesGoAtOnce has a pod with the names of a Dubbo provider of 14 interfaces: one after the other the calls would take 9 s.
func TestManyEntriesGoAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const slowCall = 600 * time.Millisecond // as Nacos takes until readers see it
		w.registry.Delay(fakeregistry.Match{Op: fakeregistry.OpRegister}, slowCall)
		names := []string{"shop=20880"}
		for i := range 14 {
			names = append(names, fmt.Sprintf("providers:org.example.Shop%d:1.0.0:=20880", i))
		}
		pod := w.bornPod(w.cloneSet("web"), "web-1", annotated(service.AnnotationServices, strings.Join(names, ",")))
		began := time.Now()
		w.reconcile(pod)
		if took := time.Since(began); took != slowCall {
			t.Errorf("%d entries went in within %s, want %s", len(names), took, slowCall)
		}
		w.expectHooks("all are in", pod, "preNormal inPlaceUpdate preDelete")
		if entries, err := w.registry.Truth(t.Context(), testCluster); err != nil || len(entries) != len(names) {
			t.Errorf("the registry has %d entries, want %d, and error %v", len(entries), len(names), err)
		}
	})
}

func TestManagerThatStopsBeginsNoCall(t *testing.T) {
	t.Parallel()
	type row struct {
		answer error
		call   string
		events []string
	}
	expect.Each(t, map[string]row{
		"after an answer": {nil, "Deregister admin@10.0.0.1:9090", nil},
		"after a failure": {errors.New("down"), "Deregister admin@10.0.0.1:9090" + failed, []string{"Warning RolloutWaits", "Warning RegistryUnavailable"}},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, proceeds)
		pod := w.servingPod(w.cloneSet("web", twoServices), "web-1")
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.sleep(2 * time.Minute) // the manager was away, and the failure policy waits for one
		ctx, stop := context.WithCancel(w.Context())
		w.registry.OnAnswer(fakeregistry.Match{}, func(fakeregistry.Call) { stop() })
		w.registry.FailNext(anyCall(), tc.answer)
		_, err := w.r.Reconcile(ctx, lifecycle.PodIDOf(lifecycle.PodOf(pod)))
		w.must(err, "reconciling while the manager stops")
		w.expectJournal("the second service is left to the next manager", tc.call, writes)
		w.expectHooks("one of two was never asked, and the failure policy is for registries that fail", pod, "inPlaceUpdate preDelete")
		w.expectReleases("nothing is let go")
		w.expectEvents("that the manager stops is no news", tc.events...)

		w.restart()
		w.reconciles(pod, "the next one trusts no call but its own", "Deregister admin@10.0.0.1:9090", deregisters, writes)
	})
}

// TestManagerThatStopsWritesDownWhatIsAcknowledged: the next one may find the pod described otherwise.
func TestManagerThatStopsWritesDownWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.changePod(pod, annotated(service.AnnotationServices, "web=8080,admin=9090,more=7070"))
	ctx, stop := context.WithCancel(w.Context())
	w.registry.OnAnswer(fakeregistry.Match{}, func(fakeregistry.Call) { stop() })
	_, err := w.r.Reconcile(ctx, lifecycle.PodIDOf(lifecycle.PodOf(pod)))
	w.must(err, "reconciling while the manager stops")
	w.expectJournal("the third service is left to the next manager", "Register admin@10.0.0.1:9090", writes)
	if named := w.record(pod).Instances; len(named) != 2 {
		t.Errorf("the record names %v, want what is in service and no more", named)
	}
}

func TestProbeThatAStopCutsOffIsNoTrouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(w.Context())
	w.apply(func(s *choices) {
		reg := s.Registries["default"]
		reg.Prober = probes(func() error {
			stop()
			return ctx.Err()
		})
		s.Registries = map[string]Registry{"default": reg}
	})
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	_, err := w.r.Reconcile(ctx, lifecycle.PodIDOf(lifecycle.PodOf(pod)))
	w.must(err, "reconciling")
	w.expectJournal("it was registered, and it is not known whether it serves", registers)
	w.expectEvents("nothing is wrong")
}

// probes is a Prober.
type probes func() error

func (p probes) Probe(context.Context, registry.Instance) error { return p() }
