package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// tell gives the manager the cache's event for the pod as it is.
func (w *world) tell(pod *corev1.Pod) {
	w.Helper()
	now := w.current(pod)
	w.r.podEvents().Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: lifecycle.PodOf(now), ObjectNew: lifecycle.PodOf(now)}, w.queue)
}

// turn changes a pod, and the manager hears of it.
func (w *world) turn(pod *corev1.Pod, change ...func(*corev1.Pod)) {
	w.Helper()
	w.changePod(pod, change...)
	w.tell(pod)
}

// servingPods are n pods of one service, in service and known to the manager as such.
func (w *world) servingPods(n int, change ...func(*corev1.Pod)) []*corev1.Pod {
	w.Helper()
	web := w.cloneSet("web")
	pods := make([]*corev1.Pod, 0, n)
	for i := range n {
		pod := w.servingPod(web, fmt.Sprintf("web-%d", i+1), change...)
		w.tell(pod)
		pods = append(pods, pod)
	}
	w.queue.take()
	return pods
}

// TestRegistryThatWasNeverAskedHoldsNoPod: its circuit breaker has been open since the pod came.
func TestRegistryThatWasNeverAskedHoldsNoPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.withRegistry("new")
	other.Fail(anyCall(), errors.New("down"))
	nothing := w.listing(Listing{})
	nothing.Registry, nothing.Entries = "new", nil
	w.compare(nothing)
	web := w.cloneSet("web", inRegistries("default,new"), func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle.PreNormal = nil })
	for i := range 5 {
		w.reconcile(w.bornPod(web, fmt.Sprintf("tries-%d", i), inState(appspub.LifecycleStateNormal)))
	}
	pod := w.bornPod(web, "web-1", inState(appspub.LifecycleStateNormal))
	w.reconcile(pod)
	w.takeJournal()
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectHooks("no call was made there", pod, "inPlaceUpdate")
}

func TestPanicKeepsWhatIsIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pods := w.servingPods(4)
	for _, pod := range pods[:3] {
		w.turn(pod, unready)
		w.reconcile(pod)
	}
	w.expectJournal("half of them go, and no more", "FailOver web@10.0.0.1:8080", "write web-1", "FailOver web@10.0.0.2:8080", "write web-2")
	w.expectInService(pods[2])
	w.expectEvents("a person should look", "Warning PanicThreshold 3 of the 4 pods of service \"web\" are not ready")
	out := Wait{Reason: "NotReady", Since: w.clock.Now()}
	w.expectWaits("it shows in the metric, as those do that are out", out, out, Wait{Reason: "PanicThreshold", Since: w.clock.Now()})
	w.reconcile(pods[0])
	w.expectJournal("what is out stays out")
	w.expectEvents("and is where it belongs")

	t.Log("A restart changes nothing of it.")
	w.restart()
	for _, pod := range pods {
		w.tell(pod)
	}
	w.reconcile(pods[2])
	w.reconcile(pods[0])
	w.expectJournal("the cache is full before the first pod is worked on")
	w.expectEvents("", "Warning PanicThreshold ")

	t.Log("One comes back, which ends the panic: the one that was kept is looked at again.")
	w.turn(pods[1], ready)
	var again []string
	for _, id := range w.r.State.Panics.TakeCalmed() {
		again = append(again, id.Name)
	}
	slices.Sort(again)
	if diff := cmp.Diff([]string{"web-1", "web-3"}, again); diff != "" {
		t.Fatalf("looked at again (-want +got):\n%s", diff)
	}
	w.reconcile(pods[2])
	w.expectJournal("", "FailOver web@10.0.0.3:8080", "write web-3")
	w.expectEvents("", "Normal Resolved PanicThreshold")
}

// startingPods are n pods that OpenKruise has in Normal and that are not ready yet, as without a preNormal hook.
func (w *world) startingPods(of *kruisev1alpha1.CloneSet, n int) (pods []*corev1.Pod) {
	w.Helper()
	for i := range n {
		pods = append(pods, w.bornPod(of, fmt.Sprintf("starts-%d", i+1), inState(appspub.LifecycleStateNormal), unready))
	}
	return pods
}

// anotherLeads has a new manager look at all of the pods.
func (w *world) anotherLeads(pods []*corev1.Pod) {
	w.Helper()
	w.restart()
	for _, pod := range pods {
		w.tell(pod)
	}
	for _, pod := range pods {
		w.reconcile(pod)
		w.tell(pod)
	}
	w.takeEvents()
}

// expectPanic: the pod turns unready and stays in service, since so many pods are not ready; or it is taken out where none is said.
func (w *world) expectPanic(pod *corev1.Pod, inPanic string) {
	w.Helper()
	w.turn(pod, unready)
	w.takeEvents()
	w.reconcile(pod)
	w.tell(pod)
	if inPanic == "" {
		w.expectEvents("no Warning")
		w.expectNotInService(pod)
		return
	}
	w.expectEvents("", "Warning PanicThreshold "+inPanic)
	w.expectInService(pod)
}

// TestPanicCountsNoPodThatOnlyStarts: a new leader takes such pods out to be sure, and writes that down.
func TestPanicCountsNoPodThatOnlyStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	starting := w.startingPods(web, 5)
	var serve []*corev1.Pod
	for i := range 4 {
		serve = append(serve, w.servingPod(web, fmt.Sprintf("web-%d", i+1)))
	}
	all := slices.Concat(serve, starting)
	w.anotherLeads(all)
	if !w.record(starting[0]).Exists() {
		t.Fatal("it was not taken out")
	}
	w.expectPanic(serve[0], "")

	t.Log("What was in service counts for as long as it is out, whichever manager leads.")
	w.anotherLeads(all)
	w.expectPanic(serve[1], "")
	w.expectPanic(serve[2], "3 of the 4 pods")

	t.Log("One that has started counts from then on.")
	w.turn(starting[0], ready)
	w.reconcile(starting[0])
	w.tell(starting[0])
	w.expectInService(starting[0])
	w.expectPanic(starting[0], "4 of the 5 pods")

	t.Log("The panic keeps none of those in that still start.")
	w.takeJournal()
	w.anotherLeads(all)
	if got := w.takeJournal(); !slices.Contains(got, "FailOver web@10.0.0.2:8080") || slices.Contains(got, "FailOver web@10.0.0.1:8080") {
		t.Errorf("calls and writes are %q, want %s taken out and %s kept", got, starting[1].Name, starting[0].Name)
	}
	w.turn(starting[1], ready)
	w.reconcile(starting[1])
	w.expectInService(starting[1])
}

// TestWhatCountsForAPanicAfterAnotherLeads: what happened to a pod before that leader took it out.
func TestWhatCountsForAPanicAfterAnotherLeads(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		before func(w *world, pod *corev1.Pod)
		want   bool
	}{
		"nothing": {"it was never in service", func(*world, *corev1.Pod) {}, false},
		"was updated in place": {"it was not in service for that either", func(w *world, pod *corev1.Pod) {
			for _, state := range []appspub.LifecycleStateType{
				appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated,
			} {
				w.anotherLeads(nil)
				w.reconcileIn(pod, state)
			}
			w.kruiseMoves(pod, appspub.LifecycleStateNormal)
		}, false},
		"a deletion was cancelled": {"it was never in service", func(w *world, pod *corev1.Pod) {
			w.anotherLeads(nil)
			w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
			w.kruiseMoves(pod, appspub.LifecycleStateNormal)
		}, false},
		"was in service": {"it had a moment", func(w *world, pod *corev1.Pod) {
			w.turn(pod, ready)
			w.reconcile(pod)
			w.turn(pod, unready)
			w.reconcile(pod)
		}, true},
		"was in service, and updated in place": {"out for the update, it was in service before", func(w *world, pod *corev1.Pod) {
			w.turn(pod, ready)
			w.reconcile(pod)
			w.anotherLeads(nil)
			w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
			w.kruiseMoves(pod, appspub.LifecycleStateNormal, unready)
		}, true},
		"the manager died after the Register": {"the list tells", func(w *world, pod *corev1.Pod) {
			w.anotherLeads([]*corev1.Pod{pod})
			w.turn(pod, ready)
			w.losesWrite(pod)
			w.turn(pod, unready)
			w.restart()
			w.resync(Listing{})
		}, true},
		"a write after the Register was lost": {"this manager knows", func(w *world, pod *corev1.Pod) {
			w.anotherLeads([]*corev1.Pod{pod})
			w.turn(pod, ready)
			w.losesWrite(pod)
			w.turn(pod, unready)
			w.reconcile(pod)
		}, true},
		"was in service in one of its registries": {"the other is down", func(w *world, pod *corev1.Pod) {
			w.anotherLeads([]*corev1.Pod{pod})
			w.withRegistry("new").Fail(anyCall(), errors.New("down"))
			w.apply(func(s *choices) { s.DefaultRegistries = []string{"default", "new"} })
			w.turn(pod, ready)
			w.reconcile(pod)
			w.turn(pod, unready)
		}, true},
		"a record of before": {"it says no more than that the pod was taken out", func(w *world, pod *corev1.Pod) {
			w.forgedRecord(pod, "default")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.startingPods(w.cloneSet("web"), 1)[0]
			tc.before(w, pod)
			w.tell(pod)
			w.reconcile(pod)
			w.anotherLeads([]*corev1.Pod{pod})
			found := w.r.State.Panics.Of(pod.Namespace, w.record(pod), &w.r.settings.Load().Rules)
			if got := found.Peers.All == 1; got != tc.want {
				t.Errorf("it counts: %t, want %t: %s; its record is %+v", got, tc.want, tc.reason, w.record(pod))
			}
		})
	}
}

// TestPanicCountsWhatWasRestored: an API server that was restored from a backup has older versions of its pods, and these count.
func TestPanicCountsWhatWasRestored(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, func(s *choices) { s.PanicThreshold = 40 })
	lost := w.current(pod)
	lost.ResourceVersion = "1000000"
	w.r.podEvents().Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: lifecycle.PodOf(w.current(pod)), ObjectNew: lifecycle.PodOf(lost)}, w.queue)
	restored := w.current(pod)
	unready(restored)
	w.r.podEvents().Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: lifecycle.PodOf(lost), ObjectNew: lifecycle.PodOf(restored)}, w.queue)
	rules := w.built().Rules
	if got := w.r.State.Panics.Of(pod.Namespace, lifecycle.RecordOf(lifecycle.PodOf(restored)), &rules).Peers.Unready; got != 1 {
		t.Errorf("%d unready pods are counted, want the one that was restored", got)
	}
}
