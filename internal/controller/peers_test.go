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
	"github.com/rollcall-dev/rollcall/test/harness/expect"
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

// TestWhatCountsForAPanicAfterAnotherLeads: that leader took the pod out, and knows what came before by its record alone, whose rows are in plan
// and lifecycle, or by a list.
func TestWhatCountsForAPanicAfterAnotherLeads(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		before func(w *world, pod *corev1.Pod)
		want   bool
	}
	expect.Each(t, map[string]row{
		"nothing": {"it was never in service", func(*world, *corev1.Pod) {}, false},
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
		"was in service in one of its registries": {"the other is down", func(w *world, pod *corev1.Pod) {
			w.anotherLeads([]*corev1.Pod{pod})
			w.withRegistry("new").Fail(anyCall(), errors.New("down"))
			w.apply(func(s *choices) { s.DefaultRegistries = []string{"default", "new"} })
			w.turn(pod, ready)
			w.reconcile(pod)
			w.turn(pod, unready)
		}, true},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		pod := w.startingPods(w.cloneSet("web"), 1)[0]
		tc.before(w, pod)
		w.tell(pod)
		w.reconcile(pod)
		w.anotherLeads([]*corev1.Pod{pod})
		found := w.r.State.Panics.Of(pod.Namespace, w.record(pod), &w.r.settings.Load().Rules)
		expect.Equal(t, tc.want, found.Peers.All == 1, "it counts: %s; its record is %+v", tc.reason, w.record(pod))
	})
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
