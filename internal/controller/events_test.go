package controller

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// expectAsked holds the names of the pods that were put into the queue since the last look against those that should be.
func (w *world) expectAsked(why string, want ...string) {
	w.Helper()
	var got []string
	for _, a := range w.queue.take() {
		got = append(got, a.Request.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Fatalf("looks at %q, want %q\nwhy: %s", got, want, why)
	}
}

func TestQueueAfterAWorkloadChanged(t *testing.T) {
	t.Parallel()
	updated := func(w *world, old, now *kruisev1alpha1.CloneSet) {
		w.r.workloadEvents().Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: old, ObjectNew: now}, w.queue)
	}
	type row struct {
		reason string
		happen func(w *world, web *kruisev1alpha1.CloneSet)
		want   []string
	}
	expect.Each(t, map[string]row{
		"its status changed": {"each pod that becomes ready changes it, and nothing follows from it",
			func(w *world, web *kruisev1alpha1.CloneSet) { updated(w, web, web) }, nil},
		"its replicas changed": {"an autoscaler sets them all day", func(w *world, web *kruisev1alpha1.CloneSet) {
			w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Spec.Replicas = ptr.To[int32](40) })
		}, nil},
		"its template changed": {"its pods may ask for other services", func(w *world, web *kruisev1alpha1.CloneSet) {
			w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Spec.Template.Labels["app"] = "shop" })
		}, []string{"web-1", "web-2"}},
		"its hooks changed": {"others may be Rollcall's now", func(w *world, web *kruisev1alpha1.CloneSet) {
			w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle = nil })
		}, []string{"web-1", "web-2"}},
		"it is gone": {"no workload names its handlers any more", (*world).deleteCloneSet, []string{"web-1", "web-2"}},
		"another has its name": {"a watch that was broken for a while shows that as an update", func(w *world, web *kruisev1alpha1.CloneSet) {
			heir := web.DeepCopy()
			heir.UID = "heir"
			w.pod(heir, "web-3")
			updated(w, web, heir)
		}, []string{"web-1", "web-2", "web-3"}},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		web, api := w.cloneSet("web"), w.cloneSet("api")
		w.pod(web, "web-1")
		w.pod(web, "web-2")
		w.pod(api, "api-1")
		tc.happen(w, web)
		w.expectAsked(tc.reason, tc.want...)
	})
}

// TestHooksThatAreTakenAway: the next update would not wait for the registry, and no pod shows that.
func TestHooksThatAreTakenAway(t *testing.T) {
	t.Parallel()
	const lost = "Warning HooksRemoved spec.lifecycle lost Rollcall's handlers of "
	type row struct {
		reason string
		change func(*kruisev1alpha1.CloneSet)
		want   []string
	}
	expect.Each(t, map[string]row{
		"all of them": {"a writer of whole objects knows none of them", func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle = nil },
			[]string{lost + "preNormal, inPlaceUpdate, preDelete"}},
		"one of them": {"OpenKruise still waits at the others", func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle.PreDelete = nil },
			[]string{lost + "preDelete"}},
		"together with the template": {"the first pods of the rollout are updated without waiting", func(web *kruisev1alpha1.CloneSet) {
			web.Spec.Lifecycle, web.Spec.Template.Labels["app"] = nil, "shop"
		}, []string{lost + "preNormal, inPlaceUpdate, preDelete: OpenKruise no longer waits there, and if the same write changed the template"}},
		"another key": {"OpenKruise waits as before", func(web *kruisev1alpha1.CloneSet) {
			web.Spec.Lifecycle.PreDelete = &appspub.LifecycleHook{LabelsHandler: map[string]string{"example.com/leaving": "wait"}}
		}, nil},
		"another's key": {"Rollcall is not asked", func(web *kruisev1alpha1.CloneSet) {
			web.Spec.Lifecycle.PreDelete = &appspub.LifecycleHook{FinalizersHandler: []string{"somebody.example/gate"}}
		}, []string{lost + "preDelete"}},
		"only the template": {"the hooks are there", func(web *kruisev1alpha1.CloneSet) { web.Spec.Template.Labels["app"] = "shop" }, nil},
		"it is being deleted": {"nothing is updated any more", func(web *kruisev1alpha1.CloneSet) {
			web.Spec.Lifecycle, web.DeletionTimestamp = nil, &metav1.Time{Time: testEpoch()}
		}, nil},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		web := w.cloneSet("web")
		now := web.DeepCopy()
		now.Generation++
		tc.change(now)
		w.r.workloadEvents().Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: web, ObjectNew: now}, w.queue)
		w.expectEvents(tc.reason, tc.want...)
	})
}

func TestAppliedSettingsBringEveryPodUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		web := w.cloneSet("web")
		w.servingPod(web, "web-1")
		gone := w.servingPod(web, "web-2")
		w.removePod(gone)
		ctx, stop := context.WithCancel(t.Context())
		w.must(podqueue.Signalled(w.r.applied, w.r.enqueueAll).Start(ctx, w.queue), "starting to watch the settings")
		synctest.Wait()
		w.queue.take()

		w.r.Apply(w.built())
		synctest.Wait()
		w.expectAsked("what departed pods left may be undone at once with other credentials", "web-1", "web-2")

		stop()
		synctest.Wait()
		w.r.Apply(w.built())
		w.r.Apply(w.built())
		synctest.Wait()
		w.expectAsked("the watch has ended")
	})
}

func inFlight(n int) func(*choices) {
	return with(func(r *Registry) { r.MaxInFlight = n })
}

// begins reconciles a pod in the background, until its call is held.
func (w *world) begins(pods ...*corev1.Pod) (ended *sync.WaitGroup) {
	w.Helper()
	ended = &sync.WaitGroup{}
	for _, pod := range pods {
		ended.Go(func() { _, _ = w.r.Reconcile(w.Context(), lifecycle.PodIDOf(lifecycle.PodOf(pod))) })
		synctest.Wait()
	}
	return ended
}

// woken is a pod for which a slot is free, at its priority in the queue.
func woken(pod *corev1.Pod, priority int) added {
	return added{Request: lifecycle.PodIDOf(lifecycle.PodOf(pod)), Priority: priority}
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
		w.expectResult("it is woken, and looked at again in case it isn't", w.reconcile(second), visit.WokenRecheck)
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
