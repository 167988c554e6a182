package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
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

func draining15s(s *choices) { s.Drain = 15 * time.Second }

func (w *world) instance(pod *corev1.Pod, service string, port int) registry.Instance {
	return registry.Instance{
		Service: service, Address: pod.Status.PodIP, Port: port,
		Cluster: testCluster, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Registry: "default",
	}
}

func TestALifeInServiceAndOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", unready)

	w.reconcile(pod)
	w.expectJournal("a pod that was never in service costs nothing while it starts")

	w.changePod(pod, ready)
	w.reconcile(pod)
	w.expectJournal("one call, then one write", registers, writes)
	w.expectHooks("Kruise may go on once the pod is in", pod, "preNormal inPlaceUpdate preDelete")

	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.reconcile(pod)
	w.expectJournal("what was acknowledged is not asked for again")

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	w.expectJournal("one call, then one write", failsOver, writes)
	w.expectHooks("Kruise may update it", pod, "preDelete")

	w.kruiseMoves(pod, appspub.LifecycleStateUpdating, unready)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.reconcile(pod)
	w.expectJournal("it stays out, and nothing has to be said or written")

	w.changePod(pod, ready)
	w.reconcile(pod)
	w.expectJournal("one call, then one write", registers, writes)
	w.expectHooks("the update is over", pod, "preNormal inPlaceUpdate preDelete")

	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectJournal("one call, then one write", deregisters, writes)
	w.expectHooks("Kruise may delete it, and must wait again should it change its mind", pod, "inPlaceUpdate")
	w.expectAbsent(pod)

	w.removePod(pod)
	w.reconcile(pod)
	w.expectJournal("nothing is left to say")
	w.expectNoPages("the pod is gone")
	w.expectEvents("a healthy life is no news")
}

func TestAPodThatEndsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		end    func(w *world, pod *corev1.Pod)
	}{
		"deleted": {
			reason: "kubectl delete skips every hook: the registry hears of it at once, and the finalizer goes, drain or no drain",
			end:    func(w *world, pod *corev1.Pod) { w.deletePod(pod) },
		},
		"failed": {
			reason: "an evicted pod serves nobody and is not deleted yet",
			end: func(w *world, pod *corev1.Pod) {
				w.changePod(pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			},
		},
		"succeeded": {
			reason: "a pod that has ended serves nobody",
			end: func(w *world, pod *corev1.Pod) {
				w.changePod(pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, draining15s)
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			tc.end(w, pod)
			w.reconcile(pod)
			w.expectJournal(tc.reason, deregisters, writes)
			if hooks := w.hooks(pod); hooks != "gone" && hooks != "" {
				t.Errorf("hooks %q are still set\nwhy: %s", hooks, tc.reason)
			}
		})
	}
}

// Rule 1: when a call may be left out.

func TestAnUnknownOutcomeIsAskedForAgain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		fault  func(f *fakeregistry.Registry)
		event  string
	}{
		"refused connection": {
			reason: "nothing happened",
			fault:  func(f *fakeregistry.Registry) { f.FailNext(anyCall(), errors.New("connection refused")) },
			event:  "Warning RegistryUnavailable hook preDelete waits: service \"web\" at 10.0.0.1:8080: connection refused",
		},
		"lost answer": {
			reason: "it happened, and only asking again tells",
			fault:  func(f *fakeregistry.Registry) { f.LoseAnswers(anyCall(), 1, errors.New("connection reset")) },
			event:  "Warning RegistryUnavailable hook preDelete waits: service \"web\" at 10.0.0.1:8080: connection reset",
		},
		"time-out": {
			reason: "it may happen yet",
			fault:  func(f *fakeregistry.Registry) { f.FailNext(anyCall(), context.DeadlineExceeded) },
			event:  "Warning RegistryTimeout hook preDelete waits: ",
		},
		"time-out of the network": {
			reason: "the same, by another name",
			fault: func(f *fakeregistry.Registry) {
				f.FailNext(anyCall(), fmt.Errorf("calling: %w", &net.DNSError{IsTimeout: true}))
			},
			event: "Warning RegistryTimeout hook preDelete waits: ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
			tc.fault(w.registry)

			result := w.reconcile(pod)
			w.expectJournal(tc.reason, deregisters+failed, writes)
			w.expectResult("the first step of the back-off", result, backoffBase)
			w.expectHooks("nobody has acknowledged", pod, "inPlaceUpdate preDelete")
			w.expectEvents(tc.reason, tc.event)

			w.reconcile(pod)
			w.expectJournal(tc.reason, deregisters, writes)
			w.expectHooks("now it is acknowledged", pod, "inPlaceUpdate")
			w.expectEvents("a person may stop looking", "Normal Resolved ")
		})
	}
}

func TestARestartAsksAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.registry.Replace(newBackend(t))
	w.restart()

	w.reconcile(pod)
	w.expectJournal("the record says that it is in service, and the record is a hint", registers)
	w.expectInService(pod)
}

func TestWhatARecordIsGoodFor(t *testing.T) {
	t.Parallel()
	const now, before = "2026-01-02T03:04:05Z", "2026-01-02T03:00:00Z"
	type written struct {
		want      lifecycle.Want
		timestamp string
		uid       string
		service   string
		version   int
	}
	cases := map[string]struct {
		reason string
		state  appspub.LifecycleStateType
		dies   bool
		drain  time.Duration
		record written
		want   []string
	}{
		"PreparingDelete, absent, never in": {
			reason: "a record that says of no time when the pod was taken out spares no drain",
			state:  appspub.LifecycleStatePreparingDelete,
			drain:  time.Minute,
			record: written{want: lifecycle.Absent, timestamp: now},
			want:   []string{deregisters, writes},
		},
		"PreparingUpdate, out": {
			reason: "a record is a hint: the call is made again, which changes nothing where it tells the truth",
			state:  appspub.LifecycleStatePreparingUpdate,
			record: written{want: lifecycle.OutOfService, timestamp: now},
			want:   []string{failsOver, writes},
		},
		"PreparingDelete, absent": {
			reason: "the same",
			state:  appspub.LifecycleStatePreparingDelete,
			record: written{want: lifecycle.Absent, timestamp: now},
			want:   []string{deregisters, writes},
		},
		"Updating, out": {
			reason: "the same, and nothing is to be written",
			state:  appspub.LifecycleStateUpdating,
			record: written{want: lifecycle.OutOfService, timestamp: now},
			want:   []string{failsOver},
		},
		"deleted, absent": {
			reason: "the same",
			state:  appspub.LifecycleStateNormal, dies: true,
			record: written{want: lifecycle.Absent, timestamp: now},
			want:   []string{deregisters, writes},
		},
		"PreparingDelete, absent, another stay": {
			reason: "the deletion was cancelled in between, and the pod was in service again",
			state:  appspub.LifecycleStatePreparingDelete,
			record: written{want: lifecycle.Absent, timestamp: before},
			want:   []string{deregisters, writes},
		},
		"PreparingDelete, out": {
			reason: "out of service is not absent",
			state:  appspub.LifecycleStatePreparingDelete,
			record: written{want: lifecycle.OutOfService, timestamp: now},
			want:   []string{deregisters, writes},
		},
		"PreparingDelete, another pod's": {
			reason: "the pod that had the name before",
			state:  appspub.LifecycleStatePreparingDelete,
			record: written{want: lifecycle.Absent, timestamp: now, uid: "another"},
			want:   []string{deregisters, writes},
		},
		"PreparingDelete, another instance": {
			reason: "what it names is taken out too, wherever that is",
			state:  appspub.LifecycleStatePreparingDelete,
			record: written{want: lifecycle.Absent, timestamp: now, service: "admin"},
			want:   []string{deregisters, "Deregister admin@10.0.0.1:8080", writes},
		},
		"Normal, in": {
			reason: "it can have been taken out and the write been lost",
			state:  appspub.LifecycleStateNormal,
			record: written{want: lifecycle.InService, timestamp: now},
			want:   []string{registers, writes},
		},
		"PreparingNormal, in": {
			reason: "the same",
			state:  appspub.LifecycleStatePreparingNormal,
			record: written{want: lifecycle.InService, timestamp: now},
			want:   []string{registers, writes},
		},
		"PreparingDelete, out by a later version": {
			reason: "Rollcall was rolled back, and does not know what its successor took for an acknowledgement",
			state:  appspub.LifecycleStatePreparingDelete,
			record: written{want: lifecycle.Absent, timestamp: now, version: 2},
			want:   []string{deregisters, writes},
		},
		"PreparingUpdate, out by a later version, draining": {
			reason: "the drain begins anew with the call that is made to be sure",
			state:  appspub.LifecycleStatePreparingUpdate, drain: time.Minute,
			record: written{want: lifecycle.OutOfService, timestamp: now, version: 2},
			want:   []string{failsOver, writes},
		},
		"Normal, out by a later version": {
			reason: "whatever it says, a pod that is Normal and ready is not taken out; our own record follows",
			state:  appspub.LifecycleStateNormal,
			record: written{want: lifecycle.Absent, timestamp: now, version: 2},
			want:   []string{registers, writes},
		},
		"Normal, in by a later version": {
			reason: "the same",
			state:  appspub.LifecycleStateNormal,
			record: written{want: lifecycle.InService, timestamp: now, version: 2},
			want:   []string{registers, writes},
		},
		"Updated, out": {
			reason: "it can have been put in and the write been lost",
			state:  appspub.LifecycleStateUpdated,
			record: written{want: lifecycle.OutOfService, timestamp: now},
			want:   []string{failsOver},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *choices) { s.Drain = tc.drain })
			stamp := annotated(appspub.LifecycleTimestampKey, now)
			pod := w.pod(w.cloneSet("web"), "web-1", inState(tc.state), stamp)
			uid, name := pod.UID, "web"
			if tc.record.uid != "" {
				uid = "another"
			}
			if tc.record.service != "" {
				name = tc.record.service
			}
			record, err := json.Marshal(lifecycle.Record{
				Version: tc.record.version,
				Stamp:   lifecycle.Stamp{UID: uid, Timestamp: tc.record.timestamp, State: string(tc.state)}, Want: tc.record.want,
				Instances: []lifecycle.Recorded{{Registry: "default", Service: name, Address: "10.0.0.1", Port: 8080}},
				Handlers: []lifecycle.Handler{
					{Finalizer: preDeleteFinalizer}, {Label: inPlaceLabel, Value: "hold"}, {Label: preNormalLabel, Value: "ok"},
				},
			})
			w.must(err, "encoding the record")
			w.changePod(pod, annotated(lifecycle.AnnotationRecord, string(record)), func(p *corev1.Pod) {
				if tc.state == appspub.LifecycleStateUpdated {
					unready(p)
				}
			})
			if tc.dies {
				w.deletePod(pod)
			}

			w.reconcile(pod)
			w.expectJournal(tc.reason, tc.want...)
			if p := w.current(pod); p != nil {
				if since := lifecycle.RecordOf(p).OutSince; since != nil && since.IsZero() {
					t.Error("the record says that the pod is out since the year 1")
				}
			}
		})
	}
}

func TestAPodThatWasNeverInService(t *testing.T) {
	t.Parallel()
	const none, taken = "", deregisters
	for name, tc := range map[string]struct {
		reason string
		given  func(*world) *corev1.Pod
		want   string
	}{
		"new, and the registry was listed": {
			"it came under our eyes, and no leader before us has registered it: no call, no drain",
			func(w *world) *corev1.Pod { w.resync(Listing{}); return w.newPod() }, none,
		},
		"new, and listed since": {
			"what was registered before we led would be in the list",
			func(w *world) *corev1.Pod { defer w.resync(Listing{}); return w.newPod() }, none,
		},
		"new, and the registry was never listed": {
			"our watch may have lagged when we began to lead: another leader can have registered it and died",
			func(w *world) *corev1.Pod { return w.newPod() }, taken,
		},
		"new, and what is listed may be older than our lead": {
			"so may what a leader before us did",
			func(w *world) *corev1.Pod { w.resync(Listing{Staleness: time.Minute}); return w.newPod() }, taken,
		},
		"new, and what is listed can't be so old": {
			"the list shows a time at which we led",
			func(w *world) *corev1.Pod {
				w.resync(Listing{Staleness: time.Minute})
				w.sleep(time.Minute)
				w.resync(Listing{Staleness: time.Minute})
				return w.newPod()
			}, none,
		},
		"new, and another registry of that name was listed": {
			"it says nothing of this one",
			func(w *world) *corev1.Pod {
				w.resync(Listing{Server: fakeregistry.New(w.backend)})
				return w.newPod()
			}, taken,
		},
		"old": {
			"another process can have put it in service, and its record be lost: it drains",
			func(w *world) *corev1.Pod { w.resync(Listing{}); return w.pod(w.cloneSet("web"), "web-1", unready) }, taken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, draining15s)
			pod := tc.given(w)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
			w.reconcile(pod)
			if tc.want == none {
				w.expectJournal(tc.reason, writes)
				w.expectHooks(tc.reason, pod, "inPlaceUpdate")
				return
			}
			w.expectJournal(tc.reason, tc.want, writes)
			w.expectHooks(tc.reason, pod, "inPlaceUpdate preDelete")
		})
	}
}

func TestANewPodThatEndsIsTakenOutUnlessAListShowsThatItIsNotIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.newPod()
	w.changePod(pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	w.reconcile(pod)
	w.expectJournal("its hooks are released, as if it were deleted", deregisters, writes)
}

// newPod is one that comes under our eyes, and that we have looked at before it is ready.
func (w *world) newPod() *corev1.Pod {
	w.Helper()
	pod := w.bornPod(w.cloneSet("web"), "web-1", unready)
	w.reconcile(pod)
	w.expectJournal("it is in no registry, and is not ready")
	return pod
}

func TestATimeOutThatLandsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.FailNext(anyCall(), context.DeadlineExceeded)
	w.reconcile(pod)
	w.expectJournal("", registers+failed)
	w.expectEvents("", "Warning RegistryTimeout ")

	t.Log("A second later the pod is scaled in.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	result := w.reconcile(pod)
	w.expectJournal("it is taken out at once, and that is not the end of it", deregisters)
	w.expectResult("the Register can be carried out until the time-out has passed twice", result, 2*testTimeout-time.Second)
	w.expectWaits("", Wait{Hook: "preDelete", Reason: "Settling", Since: w.clock.Now()})

	t.Log("The Register lands.")
	w.sleep(4 * time.Second)
	w.must(w.backend.Register(t.Context(), w.instance(pod, "web", 8080)), "landing the call")
	w.reconcile(pod)
	w.expectJournal("to ask before the time has passed proves nothing")

	t.Log("The time-out has passed twice.")
	w.sleep(5 * time.Second)
	result = w.reconcile(pod)
	w.expectJournal("one more acknowledged call, and the drain's record", deregisters, writes)
	w.expectAbsent(pod)
	w.expectResult("clients may have seen it until just now, so the drain begins here", result, 15*time.Second)

	w.sleep(15 * time.Second)
	w.reconcile(pod)
	w.expectJournal("released", writes)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestAnAnswerThatTakesLongDoesNotSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.FailNext(anyCall(), context.DeadlineExceeded)
	w.reconcile(pod)
	w.takeJournal()

	t.Log("The pod is scaled in, its Deregister is carried out, the Register lands, and only then the answer comes.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	stop := w.registry.OnAnswer(anyCall(), func(fakeregistry.Call) {
		w.sleep(2 * testTimeout)
		w.must(w.backend.Register(t.Context(), w.instance(pod, "web", 8080)), "landing the call")
	})
	w.reconcile(pod)
	stop()
	w.expectJournal("it began before the time had passed, so its answer proves nothing", deregisters)
	w.expectHooks("", pod, "inPlaceUpdate preDelete")

	w.reconcile(pod)
	w.expectJournal("", deregisters, writes)
	w.expectAbsent(pod)
}

func TestATimeOutOfWhatIsWantedAnywayNeedsNoSettling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.registry.FailNext(anyCall(), context.DeadlineExceeded)
	w.reconcile(pod)
	w.reconcile(pod)
	w.expectJournal("a FailOver that lands after a FailOver changes nothing", failsOver+failed, writes, failsOver, writes)
}

func TestALateFailOverHoldsTheNextAssertion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.registry.FailNext(anyCall(), context.DeadlineExceeded)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated, func(p *corev1.Pod) { delete(p.Labels, inPlaceLabel) })
	w.takeJournal()

	w.reconcile(pod)
	w.expectJournal("it is put in, and can be thrown out again", registers)
	w.expectHooks("Kruise counts on it once the hook is set", pod, "preDelete")

	w.sleep(2 * testTimeout)
	w.reconcile(pod)
	w.expectJournal("", registers, writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
}

func TestACancelledScaleInDuringAnUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	w.expectHooks("preNormal too, in the same write", pod, "preDelete")
	w.kruiseMoves(pod, appspub.LifecycleStateUpdating)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	mend := w.registry.Fail(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingNormal)
	w.reconcile(pod)
	w.expectHooks("Kruise must not count on a pod that is in no registry", pod, "inPlaceUpdate preDelete")

	mend()
	w.takeJournal()
	w.reconcile(pod)
	w.expectJournal("", registers, writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
}

func TestACallIsGivenUpAfterTheTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.r.Clock = clock.RealClock{}
		pod := w.bornPod(w.cloneSet("web"), "web-1")
		hold := w.registry.LandLate(anyCall(), 1)
		started := time.Now()
		w.reconcile(pod)
		if took := time.Since(started); took != testTimeout {
			t.Errorf("the reconcile took %s, want the time-out, %s", took, testTimeout)
		}
		w.expectEvents("", "Warning RegistryTimeout ")
		hold.Release()
		w.reconcile(pod)
		w.expectJournal("", registers+failed, registers, writes)
	})
}

// stubborn answers only when it has to, and not with the context's error.
type stubborn struct{ registry.Registry }

func (stubborn) Register(ctx context.Context, _ registry.Instance) error {
	<-ctx.Done()
	return errors.New("gave up")
}

func TestAnErrorAfterTheTimeOutIsATimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *choices) { s.use(stubborn{s.Registries["default"].Calls}) })
		w.r.Clock = clock.RealClock{}
		pod := w.bornPod(w.cloneSet("web"), "web-1")
		w.reconcile(pod)
		w.expectEvents("whatever it is called", "Warning RegistryTimeout ")

		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.expectResult("counted from when the call began", w.reconcile(pod), testTimeout)
	})
}

// Keep.

func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*corev1.Pod)
		events []string
	}{
		"not ready": {
			reason: "the configuration says so",
			change: unready,
		},
		"an unknown state": {
			reason: "nobody knows what it means",
			change: inState("Dreaming"),
			events: []string{"Warning UnknownState ", "Warning UnknownState "},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, keepsUnready)
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			w.changePod(pod, tc.change)
			w.reconcile(pod)
			w.restart()
			w.reconcile(pod)
			w.expectJournal(tc.reason)
			w.expectInService(pod)
			w.expectEvents("each manager says what it does not know, and nothing else", tc.events...)
		})
	}
}

// Rule 2: an address that is no longer the pod's.

func TestANewAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	moveTo := func(ip string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.PodIP = ip } }

	w.changePod(pod, moveTo("10.0.0.9"))
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.expectJournal("the old one goes first, and the new one does not wait for it", deregisters+failed,
		"Register web@10.0.0.9:8080", writes)
	w.expectWaits("what is left is shown", Wait{Reason: "RegistryUnavailable", Since: w.clock.Now()})

	w.reconcile(pod)
	w.expectJournal("it is tried again, and the record names it until then", deregisters, writes)
	w.reconcile(pod)
	w.expectJournal("once")

	t.Log("The manager is restarted and the address changes once more.")
	w.restart()
	w.changePod(pod, moveTo("10.0.0.10"))
	w.reconcile(pod)
	w.expectJournal("the record knows the address", "Deregister web@10.0.0.9:8080", "Register web@10.0.0.10:8080", writes)
}

// TestDualStack: a pod of two families stands under its first address, the one that podIP names, and its whole life goes
// by that.
func TestDualStack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ips []string
		at  string
	}{
		"IPv6 alone": {ips: []string{"fd00:10:244::7"}, at: "web@[fd00:10:244::7]:8080"},
		"IPv6 first": {ips: []string{"fd00:10:244::7", "10.0.0.7"}, at: "web@[fd00:10:244::7]:8080"},
		"IPv4 first": {ips: []string{"10.0.0.7", "fd00:10:244::7"}, at: "web@10.0.0.7:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.pod(w.cloneSet("web"), "web-1", func(p *corev1.Pod) {
				p.Status.PodIP, p.Status.PodIPs = tc.ips[0], nil
				for _, ip := range tc.ips {
					p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
				}
			})
			w.reconcile(pod)
			w.expectJournal("put in", "Register "+tc.at, writes)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
			w.reconcile(pod)
			w.expectJournal("out for an update", "FailOver "+tc.at, writes)
			w.restart()
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
			w.reconcile(pod)
			w.expectJournal("the next manager takes it out where it was put in", "Deregister "+tc.at, writes)
			w.expectAbsent(pod)
		})
	}
}

func TestANewAddressOfAPodThatIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keepsUnready)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.reconcile(pod)
	w.takeJournal()

	w.changePod(pod, unready)
	w.reconcile(pod)
	w.expectJournal("an unready pod stays as it is")
	w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
	w.reconcile(pod)
	w.expectJournal("its old address may be another pod's soon", deregisters)
	w.changePod(pod, func(p *corev1.Pod) { p.Labels[appspub.LifecycleStateKey], p.Status.PodIP = "Brooding", "10.0.0.10" })
	w.reconcile(pod)
	w.expectJournal("in a state that we don't know, nothing is touched")
}

func TestAnInstanceThatNoRecordNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.patching(func(func() error) error { return errors.New("connection reset") })
	w.reconcileFails(pod)
	w.patching(nil)
	w.takeJournal()
	w.changePod(pod, annotated(service.AnnotationServices, "api=9090"))
	w.reconcile(pod)
	w.expectJournal("this process put it in service, record or not", "Register api@10.0.0.1:9090", writes, deregisters, writes)
}

func TestAServiceThatIsNoLongerThePods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.changePod(pod, annotated(service.AnnotationServices, "api=9090"))
	w.reconcile(pod)
	w.expectJournal("there is no moment at which clients find it nowhere", "Register api@10.0.0.1:9090", deregisters, writes)
}

func TestARecordNamesWhatIsNotThePods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	victim := w.servingPod(web, "web-1")
	thief := w.servingPod(web, "web-2")

	t.Log("A tenant writes another pod's instance into a record.")
	record := w.record(thief)
	record.Instances = append(record.Instances, lifecycle.Recorded{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 8080})
	text, err := json.Marshal(record)
	w.must(err, "encoding the record")
	w.changePod(thief, annotated(lifecycle.AnnotationRecord, string(text)))
	w.reconcile(thief)

	calls := w.registry.Calls(fakeregistry.Match{Op: fakeregistry.OpDeregister})
	if len(calls) != 1 || calls[0].Instance.UID != string(thief.UID) {
		t.Errorf("got calls %v, want one that bears the mark of the pod that has the record", calls)
	}
	w.expectInService(victim)
}

// Rule 3: the drain.

func TestADrain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		state appspub.LifecycleStateType
		call  string
		held  string
		freed string
	}{
		"before a deletion": {appspub.LifecycleStatePreparingDelete, deregisters, "inPlaceUpdate preDelete", "inPlaceUpdate"},
		"before an update":  {appspub.LifecycleStatePreparingUpdate, failsOver, "inPlaceUpdate preDelete", "preDelete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, draining15s)
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			w.kruiseMoves(pod, tc.state)

			result := w.reconcile(pod)
			w.expectJournal("the record is written, and Kruise waits", tc.call, writes)
			w.expectResult("", result, 15*time.Second)
			w.expectHooks("clients have not noticed yet", pod, tc.held)

			w.sleep(5 * time.Second)
			result = w.reconcile(pod)
			w.expectJournal("another event changes nothing")
			w.expectResult("what is left of it", result, 10*time.Second)

			t.Log("The manager is restarted.")
			w.restart()
			w.sleep(4 * time.Second)
			result = w.reconcile(pod)
			w.expectJournal("the call is made again, and the record tells since when the pod is out", tc.call)
			w.expectResult("what is left of it", result, 6*time.Second)

			w.sleep(6 * time.Second)
			result = w.reconcile(pod)
			w.expectJournal("the second write", writes)
			w.expectResult("", result, 0)
			w.expectHooks("", pod, tc.freed)
			w.expectEvents("a drain is no news")
		})
	}
}

func TestADrainBeginsAnewUnderAnotherStamp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.sleep(10 * time.Second)

	t.Log("The deletion is cancelled and comes again while no manager is there to see it.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingNormal)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.restart()
	w.takeJournal()
	result := w.reconcile(pod)
	w.expectJournal("it can have been in service in between", deregisters, writes)
	w.expectResult("the whole of it", result, 15*time.Second)
}

func TestADrainIsNotRepeatedForWhatStayedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	w.sleep(15 * time.Second)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdating)
	w.reconcile(pod)
	w.takeJournal()

	t.Log("It is scaled in while it is updated.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectJournal("nothing put it back in, so its clients are long gone", deregisters, writes)
	w.expectHooks("", pod, "")
}

func TestATimeOutOfLongAgoRepeatsNoDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.FailNext(anyCall(), context.DeadlineExceeded)
	w.reconcile(pod)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.sleep(time.Hour)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectResult("", w.reconcile(pod), 15*time.Second)
	w.sleep(15 * time.Second)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdating)
	w.reconcile(pod)
	w.takeJournal()

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectJournal("what could land has landed long ago", deregisters, writes)
	w.expectHooks("", pod, "")
}

func TestADrainCountsFromTheLastTimeItWasTakenOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.sleep(14 * time.Second)

	t.Log("The deletion is cancelled, the pod is put in again, and is deleted again.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingNormal)
	w.reconcile(pod)
	if since := w.record(pod).OutSince; since != nil {
		t.Errorf("the record of a pod in service says that it is out since %s", since)
	}
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.takeJournal()
	result := w.reconcile(pod)
	w.expectJournal("", deregisters, writes)
	w.expectResult("the whole of it", result, 15*time.Second)
}

func TestADrainOfThePodsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web"), "web-1", annotated(service.AnnotationDrain, "40s"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.expectResult("the pod's annotation wins", w.reconcile(pod), 40*time.Second)

	w.changePod(pod, annotated(service.AnnotationDrain, "0s"))
	w.takeJournal()
	w.reconcile(pod)
	w.expectJournal("someone is in a hurry", writes)
}

func TestADrainThatIsSaidToBeginInTheFuture(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	record := w.record(pod)
	future := w.clock.Now().Add(1000 * time.Hour)
	record.OutSince = &future
	text, err := json.Marshal(record)
	w.must(err, "encoding the record")
	w.changePod(pod, annotated(lifecycle.AnnotationRecord, string(text)))
	w.restart()

	w.expectResult("nobody waits for longer than a drain", w.reconcile(pod), 15*time.Second)
	w.sleep(15 * time.Second)
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestADrainThatAnotherClockBegan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		// ahead is how much later the new leader's clock reads, and bound what it knows of that.
		ahead, bound time.Duration
		left         time.Duration
	}{
		"the same clock":        {"it goes on where it was", 0, 0, 10 * time.Second},
		"one that is ahead":     {"5 s have passed, whatever the clock reads", 8 * time.Second, 8 * time.Second, 10 * time.Second},
		"one that is behind":    {"the same", -3 * time.Second, -3 * time.Second, 10 * time.Second},
		"a bound that is loose": {"it may take longer, and never less", 8 * time.Second, 9 * time.Second, 11 * time.Second},
		"nothing is known":      {"it begins anew", 8 * time.Second, time.Hour, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, draining15s)
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
			w.reconcile(pod)
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

// Several instances of one pod.

func twoServices(web *kruisev1alpha1.CloneSet) {
	web.Spec.Template.Annotations = map[string]string{service.AnnotationServices: "admin=9090,web=8080"}
}

func TestSeveralInstances(t *testing.T) {
	t.Parallel()
	admin := fakeregistry.Match{Service: "admin"}
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web", twoServices), "web-1")

	w.registry.FailNext(fakeregistry.Match{Service: "web"}, errors.New("down"))
	w.reconcile(pod)
	w.expectJournal("the hook waits for all of them", "Register admin@10.0.0.1:9090", registers+failed)
	w.reconcile(pod)
	w.expectJournal("only what is missing is asked for, and one write is made for all", registers, writes)
	want := []lifecycle.Recorded{
		{Registry: "default", Service: "admin", Address: "10.0.0.1", Port: 9090},
		{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 8080},
	}
	if diff := cmp.Diff(want, w.record(pod).Instances); diff != "" {
		t.Errorf("instances in the record (-want +got):\n%s", diff)
	}

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.registry.FailNext(admin, errors.New("down"))
	w.reconcile(pod)
	w.expectJournal("one fails, and the other is taken out all the same", "Deregister admin@10.0.0.1:9090 failed", deregisters, writes)
	w.expectHooks("the hook waits for all of them", pod, "inPlaceUpdate preDelete")
	w.reconcile(pod)
	w.expectJournal("", "Deregister admin@10.0.0.1:9090", writes)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestAServiceThatCannotBeEnteredKeepsThePodOutOfNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web", twoServices), "web-1")
	w.registry.FailNext(fakeregistry.Match{Service: "admin"}, errors.New("down"))
	w.reconcile(pod)
	w.expectJournal("the clients of web need not wait", "Register admin@10.0.0.1:9090 failed", registers)
	w.expectHooks("the hook waits for all of them", pod, "inPlaceUpdate preDelete")
}

func TestADrainCountsFromTheLastInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web", twoServices), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.registry.FailNext(fakeregistry.Match{Service: "web"}, errors.New("down"))
	w.reconcile(pod)
	w.sleep(7 * time.Second)
	w.expectResult("the clients of web have known for no time", w.reconcile(pod), 15*time.Second)
}

// The settings.

func TestSettingsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")

	w.apply(func(s *choices) { s.Drain = time.Minute })
	w.reconcile(pod)
	w.expectJournal("the registry is the same, and so is what is known of it")

	w.apply(func(s *choices) { s.use(fakeregistry.New(w.backend)) })
	w.reconcile(pod)
	if calls := w.settings.Registries["default"].Calls.(*fakeregistry.Registry).Calls(anyCall()); len(calls) != 1 || calls[0].Op != fakeregistry.OpRegister {
		t.Errorf("got calls %v, want the pod to be registered: nothing is known of another registry", calls)
	}

	t.Log("Another client of the same servers, while a call of the first is on its way.")
	w.takeEvents()
	w.apply(func(s *choices) { s.use(w.registry) })
	w.registry.FailNext(anyCall(), context.DeadlineExceeded)
	w.reconcile(pod)
	w.apply(func(s *choices) { s.use(fakeregistry.New(w.backend)); s.Drain = 0 })
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.expectResult("the Register can still land", w.reconcile(pod), 2*testTimeout-time.Second)
	w.expectHooks("", pod, "inPlaceUpdate preDelete")
}

func TestRotatedCredentialsMoveNoPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	w.apply(func(s *choices) { s.use(w.registry); s.identify("default", "the servers") })
	web := w.cloneSet("web")
	serving, drains := w.servingPod(web, "web-1"), w.servingPod(web, "web-2")
	late, refused := w.servingPod(web, "web-3"), w.servingPod(web, "web-4")
	w.kruiseMoves(drains, appspub.LifecycleStatePreparingUpdate)
	w.expectResult("the drain begins", w.reconcile(drains), 15*time.Second)
	w.changePod(late, annotated(service.AnnotationWeight, "10"))
	w.changePod(refused, annotated(service.AnnotationWeight, "10"))
	w.registry.FailNext(anyCall(), context.DeadlineExceeded, registry.RetryAfter(errors.New("bad token"), time.Hour))
	w.reconcile(late)
	w.expectResult("the registry has said when", w.reconcile(refused), time.Hour)

	rotated := fakeregistry.New(w.backend)
	w.apply(func(s *choices) { s.use(rotated); s.identify("default", "the servers") })
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

func (s *choices) identify(name, as string) {
	reg := s.Registries[name]
	reg.Identity = as
	s.Registries[name] = reg
}

func TestARecordSpeaksForNoOtherRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.takeJournal()

	other := fakeregistry.New(w.backend)
	w.apply(func(s *choices) { s.use(other) })
	w.sleep(10 * time.Second)
	w.expectResult("its clients have known for no time", w.reconcile(pod), 15*time.Second)
	if calls := other.Calls(fakeregistry.Match{Op: fakeregistry.OpDeregister}); len(calls) != 1 {
		t.Errorf("got calls %v, want the pod to be taken out of the registry that is in force now", calls)
	}
}

func TestARefusalIsTriedAgainWhenTheRegistryChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.Fail(anyCall(), registry.Terminal(errors.New("bad credentials")))
	w.expectResult("", w.reconcile(pod), backoffCap)
	w.apply(func(s *choices) { s.use(w.backend) })
	w.reconcile(pod)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
}

// Errors and when to come back.

func TestWhenARegistryIsAskedAgain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		err    error
		want   []time.Duration
		event  string
	}{
		"retryable": {
			reason: "the back-off doubles from its base",
			err:    errors.New("down"),
			want:   []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond},
			event:  "Warning RegistryUnavailable ",
		},
		"terminal": {
			reason: "trying again at once is useless, and nothing is ever given up",
			err:    fmt.Errorf("calling: %w", registry.Terminal(errors.New("bad credentials"))),
			want:   []time.Duration{30 * time.Second, 30 * time.Second},
			event:  "Warning RegistryRefused ",
		},
		"told when": {
			reason: "the registry knows best",
			err:    fmt.Errorf("calling: %w", registry.RetryAfter(errors.New("busy"), 42*time.Second)),
			want:   []time.Duration{42 * time.Second},
			event:  "Warning RegistryUnavailable ",
		},
		"told at once": {
			reason: "no registry makes us spin",
			err:    registry.RetryAfter(errors.New("busy"), 0),
			want:   []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond},
			event:  "Warning RegistryUnavailable ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.bornPod(w.cloneSet("web"), "web-1")
			w.registry.Fail(anyCall(), tc.err)
			for _, want := range tc.want {
				w.expectResult(tc.reason, w.reconcile(pod), want)
			}
			w.expectEvents("one Event for one reason, not one for each try", tc.event)
			w.expectHooks("nobody has acknowledged", pod, "inPlaceUpdate preDelete")
		})
	}
}

func TestWhatARegistrySaidOfOneChangeHoldsBackNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.FailNext(anyCall(), registry.RetryAfter(errors.New("no more instances today"), time.Hour), errors.New("down"))
	w.expectResult("the registry has said when", w.reconcile(pod), time.Hour)
	w.takeJournal()

	t.Log("The pod is deleted: the Register may have been carried out, and clients must not be given the pod.")
	w.deletePod(pod)
	w.reconcile(pod)
	w.expectJournal("the registry has said nothing of a Deregister", deregisters+failed)
	w.reconcile(pod)
	w.expectJournal("and what failed is tried again with the pod's own back-off", deregisters, writes)
	w.expectAbsent(pod)
	w.expectHooks("", pod, "gone")
}

func TestNoEventBringsACallBeforeTheRegistrySaidSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.FailNext(anyCall(), registry.RetryAfter(errors.New("busy"), 42*time.Second))
	w.reconcile(pod)
	w.sleep(time.Second)
	w.changePod(pod, annotated(service.AnnotationWeight, "10"))
	w.expectResult("what is left of the time", w.reconcile(pod), 41*time.Second)
	w.expectJournal("the pod changed, and the registry is as busy as it was", registers+failed)
	w.expectEvents("one reason, one Event", "Warning RegistryUnavailable ")

	w.sleep(41 * time.Second)
	w.reconcile(pod)
	w.expectJournal("", registers, writes)
}

func TestTheBackOffIsCappedAndForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
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
