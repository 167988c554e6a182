package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func proceeds(s *choices) {
	s.ProceedAfter = lifecycle.FailurePolicy{PreDelete: time.Minute, InPlaceUpdate: time.Minute}
}

func skips(hooks string) func(*corev1.Pod) { return annotated(lifecycle.AnnotationSkip, hooks) }

// expectReleases holds what was counted since the manager started against what it should be, without the preNormal of a pod that serves.
func (w *world) expectReleases(why string, want ...string) {
	w.Helper()
	var got []string
	families, err := w.counted.Gather()
	w.must(err, "reading the metrics")
	releases := families[len(families)-1] // by name
	for _, m := range releases.GetMetric() {
		if by, hook, n := m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetCounter().GetValue(); n > 0 && hook != "preNormal" {
			got = append(got, fmt.Sprintf("%s by %s: %v", hook, by, n))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("releases (-want +got):\n%swhy: %s", diff, why)
	}
}

func TestHookProceedsAfterItsDeadline(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, proceeds)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	repair := w.registry.Fail(anyCall(), registry.RetryAfter(errors.New("down"), 10*time.Minute))
	w.expectResult("the deadline is sooner than the registry", w.reconcile(pod), time.Minute)
	w.expectEvents("", "Warning RegistryUnavailable ")
	w.sleep(59 * time.Second)
	w.restart()
	w.expectResult("it counts from Kruise's timestamp", w.reconcile(pod), time.Second)
	w.expectHooks("it is not over", pod, "inPlaceUpdate preDelete")
	w.takeEvents()
	w.takeJournal()

	w.sleep(time.Second)
	before := w.record(pod)
	w.reconcile(pod)
	w.expectHooks("the deadline is over", pod, "preDelete")
	w.expectEvents("each release has an Event", "Warning ReleasedUnacknowledged hook inPlaceUpdate was released after 1m0s: proceedAfter.inPlaceUpdate (1m0s) has passed; not waited for: ")
	w.expectReleases("and counted", "inPlaceUpdate by failurePolicy: 1")
	if diff := cmp.Diff(before, w.record(pod)); diff != "" {
		t.Errorf("the record claims what was not acknowledged (-was +is):\n%s", diff)
	}
	w.reconcile(pod)
	w.expectReleases("once", "inPlaceUpdate by failurePolicy: 1")

	t.Log("The registry is still told, once it can be.")
	repair()
	w.sleep(10 * time.Minute)
	w.takeJournal()
	w.kruiseMoves(pod, appspub.LifecycleStateUpdating, unready)
	w.reconciles(pod, "", failsOver, writes)
}

// TestHookProceedsWhateverTheTimestamp: the time counts from when the pod was first seen to wait, if OpenKruise's clock is ahead, or a
// tenant has removed its timestamp.
func TestHookProceedsWhateverTheTimestamp(t *testing.T) {
	t.Parallel()
	lives, evicted := func(*corev1.Pod) {}, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }
	const ahead, none = "2026-01-02T05:00:00Z", "soon"
	type row struct {
		stamp  string
		change func(*corev1.Pod)
	}
	expect.Each(t, map[string]row{
		"ahead": {ahead, lives}, "ahead, and its containers have ended": {ahead, evicted},
		"not a time": {none, lives}, "not a time, and its containers have ended": {none, evicted},
	}, func(t *testing.T, tc row) {
		w, pod := serving(t, proceeds)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete, annotated(appspub.LifecycleTimestampKey, tc.stamp), tc.change)
		w.registry.Fail(anyCall(), errors.New("down"))
		w.reconcile(pod)
		w.expectWaits("since it was first seen", Wait{Hook: "preDelete", Reason: "RegistryUnavailable", Since: w.clock.Now()})
		w.sleep(time.Minute - time.Second)
		w.reconcile(pod)
		w.expectReleases("the deadline is not over")
		w.sleep(time.Second)
		w.reconcile(pod)
		w.expectReleases("the deadline is over", "preDelete by failurePolicy: 1")
	})
}

func TestCallThatIsNotPermittedSaysNothingOfTheRegistry(t *testing.T) {
	t.Parallel()
	lease := &fence{}
	w, pod := serving(t, proceeds, asking, with(func(r *Registry) { r.Fence = lease }))
	w.takeEvents()
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	lease.closed.Store(true)
	w.sleep(11 * time.Minute)
	w.reconcile(pod)
	w.expectHooks("the registry was never asked", pod, "preNormal inPlaceUpdate preDelete")
	w.expectReleases("the registry was never asked")
	if events := w.takeEvents(); len(events) > 0 {
		t.Errorf("got %q, want no Event: nothing is wrong with the pod or the registry", events)
	}
	lease.closed.Store(false)
	w.reconcile(pod)
	w.expectHooks("", pod, "preDelete")
	if got := w.registry.Calls(gets()); len(got) > 0 {
		t.Errorf("the registry was asked %d times, want never: no call was made whose outcome is unknown", len(got))
	}
}

// TestDrainOfTheLastLeaderIsNotCutShort: another manager took the pod out, and this one can ask no registry. What clocks that differ and
// forged records do to a drain has rows in plan.
func TestDrainOfTheLastLeaderIsNotCutShort(t *testing.T) {
	t.Parallel()
	down := func(w *world, _ *corev1.Pod) {
		for _, one := range w.settings.Registries {
			one.Calls.(*fakeregistry.Registry).Fail(anyCall(), errors.New("down"))
		}
	}
	type row struct {
		reason string
		// before is the pod's way until the leader is lost, and after what the next one finds besides.
		before, after func(*world, *corev1.Pod)
		// left is how much of the drain of 60 s is left for the next one.
		left time.Duration
	}
	expect.Each(t, map[string]row{
		"the registry is down": {"the record says when the drain began", nil, down, 50 * time.Second},
		"the registry is gone": {"nor is one asked that the configuration no longer has", nil, func(w *world, _ *corev1.Pod) {
			w.apply(func(s *choices) { s.Registries = map[string]Registry{"other": {Calls: w.registry}} })
		}, 50 * time.Second},
		"the pod belongs elsewhere": {"whatever is to be said of the place that it departs from", nil, func(w *world, pod *corev1.Pod) {
			w.withRegistry("new").Fail(anyCall(), errors.New("down"))
			w.changePod(pod, annotated(service.AnnotationRegistries, "new"))
			down(w, pod)
		}, 50 * time.Second},
		"a cache that lags": {"a call was made before the record was seen", nil, func(w *world, pod *corev1.Pod) {
			down(w, pod)
			w.stale = w.current(pod)
			delete(w.stale.Annotations, lifecycle.AnnotationRecord)
			w.reconcile(pod)
			w.stale = nil
		}, 50 * time.Second},
		"updated, then deleted": {"it was taken out in its stay before", func(w *world, pod *corev1.Pod) {
			w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		}, down, 49 * time.Second},
		"unready, then deleted": {"it was taken out when no hook waited", func(w *world, pod *corev1.Pod) {
			w.changePod(pod, unready)
			w.reconcile(pod)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		}, down, 49 * time.Second},
		"back for a moment": {"it was put in service again before that was written down", func(w *world, pod *corev1.Pod) {
			backForAMoment(w, pod)
			w.changePod(pod, unready)
			w.reconcile(pod)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		}, down, 49 * time.Second},
		"back for a moment, under another manager": {"which the one that took it out does not know", func(w *world, pod *corev1.Pod) {
			backForAMoment(w, pod)
			w.restart()
			w.changePod(pod, unready)
			w.reconcile(pod)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		}, down, 49 * time.Second},
		"one of two registries was down": {"the other had taken it out", func(w *world, pod *corev1.Pod) {
			joins(w, pod).Fail(anyCall(), errors.New("down"))
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		}, down, 50 * time.Second},
		"one of two was down for long": {"the other had taken it out, and put it back once before", func(w *world, pod *corev1.Pod) {
			joins(w, pod).Fail(anyCall(), errors.New("down"))
			w.changePod(pod, unready)
			w.reconcile(pod)
			w.changePod(pod, ready)
			w.reconcile(pod)
			w.sleep(time.Hour)
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		}, down, 50 * time.Second},
		"one of two was late": {"the drain began when it had taken the pod out", func(w *world, pod *corev1.Pod) {
			repair := joins(w, pod).Fail(anyCall(), errors.New("down"))
			w.changePod(pod, unready)
			w.reconcile(pod)
			w.sleep(time.Hour)
			repair()
			w.reconcile(pod)
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		}, down, 49 * time.Second},
	}, func(t *testing.T, tc row) {
		w, pod := serving(t, func(s *choices) {
			s.ProceedAfter.PreDelete = 2 * time.Second
			s.Drain, s.PanicThreshold = drain.Fixed(time.Minute), 100
		})
		if tc.before == nil {
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		} else {
			tc.before(w, pod)
		}
		w.sleep(10 * time.Second)
		w.restart()
		tc.after(w, pod)
		w.reconcile(pod)
		w.sleep(tc.left - time.Second)
		w.reconcile(pod)
		w.expectReleases(tc.reason)
		w.sleep(time.Second)
		w.reconcile(pod)
		w.expectReleases(tc.reason, "preDelete by failurePolicy: 1")
		w.expectEventWith("Warning ReleasedUnacknowledged ", "proceedAfter.preDelete (2s) and the drain have passed; not waited for: service")
	})
}

// joins has the pod in another registry too.
func joins(w *world, pod *corev1.Pod) *fakeregistry.Registry {
	w.Helper()
	other := w.withRegistry("new")
	w.changePod(pod, annotated(service.AnnotationRegistries, "default,new"))
	w.reconcile(pod)
	return other
}

// backForAMoment has an unready pod taken out, and put in service again, which the API server does not take down.
func backForAMoment(w *world, pod *corev1.Pod) {
	w.changePod(pod, unready)
	w.reconcile(pod)
	w.sleep(20 * time.Second)
	w.changePod(pod, ready)
	w.losesWrite(pod)
}

// expectEventWith looks for an Event that begins so and has the text in it.
func (w *world) expectEventWith(prefix, text string) {
	w.Helper()
	events := w.takeEvents()
	if !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, prefix) && strings.Contains(e, text) }) {
		w.Fatalf("got events %q, want one that begins with %q and has %q", events, prefix, text)
	}
}

func TestSkipFreesAPod(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, func(s *choices) { s.Drain = drain.Fixed(time.Hour) })
	w.registry.Fail(fakeregistry.Match{}, errors.New("down"))
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.takeJournal()
	w.takeEvents()
	w.changePod(pod, skips("inPlaceUpdate"))
	w.reconcile(pod)
	w.expectHooks("it names another hook", pod, "inPlaceUpdate preDelete")
	w.takeJournal()

	w.changePod(pod, skips("preDelete, inPlaceUpdate"))
	w.reconciles(pod, "it waits for nothing more", deregisters+failed, writes)
	w.expectHooks("", pod, "inPlaceUpdate")
	w.expectEvents("", `Warning ReleasedUnacknowledged hook preDelete was released by annotation rollcall.dev/skip: "preDelete, inPlaceUpdate"; `+
		`not waited for: service "web" at 10.0.0.1:8080: `)
	w.expectReleases("", "preDelete by skip: 1")
	if _, left := w.current(pod).Annotations[lifecycle.AnnotationSkip]; left {
		t.Error("the annotation is still there: it would skip again")
	}
}

// TestALingeringPodIsLetGoToo: a dying pod that lost the label which the cache selects by is let go like any other.
func TestLingeringPodIsLetGoToo(t *testing.T) {
	t.Parallel()
	linger := func(t *testing.T, settings ...func(*choices)) (w *world, pod *corev1.Pod, repair func()) {
		w = newWorld(t, settings...)
		pod = w.servingPod(w.cloneSet("web"), "web-1")
		repair = w.registry.Fail(anyCall(), errors.New("down"))
		w.losesLabel(pod)
		w.deletePod(pod)
		w.reconcile(pod)
		w.expectHooks("no policy and no person lets it go", pod, "preNormal inPlaceUpdate preDelete")
		w.takeEvents()
		return w, pod, repair
	}
	undone := func(w *world, pod *corev1.Pod, repair func()) {
		w.Helper()
		w.expectHooks("", pod, "gone")
		repair()
		w.reconcile(pod)
		w.expectAbsent(pod)
		w.expectNoPages("the registry is called all the same")
	}
	t.Run("by a person", func(t *testing.T) {
		t.Parallel()
		w, pod, repair := linger(t)
		w.changePod(pod, skips("inPlaceUpdate"))
		w.reconcile(pod)
		w.expectHooks("it names another hook", pod, "preNormal inPlaceUpdate preDelete")
		w.changePod(pod, skips("preDelete"))
		w.reconcile(pod)
		w.expectEvents("", `Warning ReleasedUnacknowledged hook preDelete was released by annotation rollcall.dev/skip: "preDelete"`)
		w.expectReleases("", "preDelete by skip: 1")
		undone(w, pod, repair)
	})
	t.Run("by the failure policy", func(t *testing.T) {
		t.Parallel()
		w, pod, repair := linger(t, proceeds)
		w.clock.SetTime(w.current(pod).DeletionTimestamp.Add(time.Minute))
		w.reconcile(pod)
		w.expectReleases("", "preDelete by failurePolicy: 1")
		undone(w, pod, repair)
	})
	t.Run("by the template", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		web := w.cloneSet("web")
		pod := w.servingPod(web, "web-1")
		w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) {
			web.Spec.Template.Annotations = map[string]string{lifecycle.AnnotationSkip: "preDelete"}
		})
		w.registry.Fail(anyCall(), errors.New("down"))
		w.losesLabel(pod, skips("preDelete"))
		w.deletePod(pod)
		w.reconcile(pod)
		w.expectHooks("it would hold for every pod", pod, "preNormal inPlaceUpdate preDelete")
		w.expectReleases("")
	})
}

func TestSkipIsTakenOffOnlyAsItWasRead(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, func(s *choices) { s.Drain = drain.Fixed(time.Hour) })
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.takeEvents()
	w.changePod(pod, skips("preDelete"))
	w.beforeTheNextWrite(func() { w.changePod(pod, skips("inPlaceUpdate")) })
	w.reconcile(pod)
	if got := w.current(pod).Annotations[lifecycle.AnnotationSkip]; got != "inPlaceUpdate" {
		t.Errorf("the annotation is %q, want what the person has written meanwhile", got)
	}
	if hooks := w.hooks(pod); !strings.HasSuffix(hooks, "preDelete") {
		t.Errorf("the hooks %q are set, want preDelete among them: the person has taken the skip back", hooks)
	}
	w.expectReleases("nothing was let go")
}

// TestSkipWrittenDuringTheRelease: a person's skip that comes while the hook is released goes with it. Left, it would skip a later one.
func TestSkipWrittenDuringTheRelease(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.beforeTheNextWrite(func() { w.changePod(pod, skips("inPlaceUpdate")) })
	w.reconcile(pod)
	w.expectHooks("the pod is not as it was read", pod, "preNormal inPlaceUpdate preDelete")
	w.reconcile(pod)
	w.expectHooks("it is out of rotation", pod, "preDelete")
	if skip, left := w.current(pod).Annotations[lifecycle.AnnotationSkip]; left {
		t.Errorf("the annotation %q is still there: it would skip a later hook", skip)
	}
	w.expectReleases("the registry has acknowledged", "inPlaceUpdate by acknowledgement: 1")
}

func TestSkipThatIsRefused(t *testing.T) {
	t.Parallel()
	asItIs := func(*kruisev1alpha1.CloneSet) {}
	fromTemplate := func(c *kruisev1alpha1.CloneSet) {
		c.Spec.Template.Annotations = map[string]string{lifecycle.AnnotationSkip: "preDelete"}
	}
	cases := map[string]struct {
		reason   string
		workload func(*kruisev1alpha1.CloneSet)
		state    appspub.LifecycleStateType
		skip     string
		event    string
		stays    bool
	}{
		"preNormal":    {"no pod comes into rotation unacknowledged", asItIs, appspub.LifecycleStatePreparingDelete, "preNormal", "Warning SkipRefused annotation rollcall.dev/skip: \"preNormal\": use preDelete", true},
		"in Updated":   {"no pod comes into rotation unacknowledged", asItIs, appspub.LifecycleStateUpdated, "inPlaceUpdate", "Warning SkipRefused annotation rollcall.dev/skip: hook inPlaceUpdate waits", true},
		"the template": {"it is for one pod, and taken off", fromTemplate, appspub.LifecycleStatePreparingDelete, "preDelete", "Warning SkipRefused annotation rollcall.dev/skip is in the workload's template", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.servingPod(w.cloneSet("web", tc.workload), "web-1")
			w.registry.Fail(anyCall(), errors.New("down"))
			w.kruiseMoves(pod, tc.state, skips(tc.skip), func(p *corev1.Pod) {
				if tc.state == appspub.LifecycleStateUpdated {
					delete(p.Labels, inPlaceLabel)
					unready(p)
				}
			})
			hooks := w.hooks(pod)
			w.reconcile(pod)
			w.reconcile(pod)
			w.expectHooks(tc.reason, pod, strings.TrimPrefix(hooks, "preNormal "))
			events := w.takeEvents()
			refusals := slices.DeleteFunc(slices.Clone(events), func(e string) bool { return !strings.HasPrefix(e, tc.event) })
			if len(refusals) != 1 {
				t.Errorf("%d Events begin with %q, want one: %q", len(refusals), tc.event, events)
			}
			if _, left := w.current(pod).Annotations[lifecycle.AnnotationSkip]; left != tc.stays {
				t.Errorf("the annotation is there: %t, want %t: %s", left, tc.stays, tc.reason)
			}
		})
	}
}

// TestHookProceedsHoweverManyEntriesADroppedRegistryHas: a registry that the configuration lacks can't be asked, and what is asked in turns
// must not wait for it.
func TestHookProceedsHoweverManyEntriesADroppedRegistryHas(t *testing.T) {
	t.Parallel()
	for _, services := range []int{plan.MaxHeard, plan.MaxHeard + 1} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, proceeds)
			w.withRegistry("another")
			var names []string
			for n := range services {
				names = append(names, fmt.Sprintf("web-%d=8080", n))
			}
			pod := w.bornPod(w.cloneSet("web", inRegistries("another,default")), "web-1",
				annotated(service.AnnotationServices, strings.Join(names, ",")))
			w.reconcile(pod)
			w.reconcileIn(pod, appspub.LifecycleStateNormal)
			w.expectInService(pod)
			w.withoutRegistry("another")
			w.changePod(pod, annotated(service.AnnotationRegistries, "default"), annotated(service.AnnotationServices, "web=8080"))
			w.restart()
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
			for range 5 {
				w.reconcile(pod)
				w.sleep(time.Minute)
			}
			w.expectReleases("proceedAfter applies to UnknownRegistry", "preDelete by failurePolicy: 1")
			entries, err := w.registry.Truth(t.Context(), testCluster)
			w.must(err, "reading the registry")
			if len(entries) > 0 {
				t.Errorf("the registry that can be asked has %d entries of the pod, want none", len(entries))
			}
		})
	}
}
