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
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// tell gives the manager the cache's event for the pod as it is.
func (w *world) tell(pod *corev1.Pod) {
	w.Helper()
	now := w.current(pod)
	w.r.podEvents().Update(w.Context(), event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: now, ObjectNew: now}, w.queue)
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

// TestPanicCountsPodsThatAreInOneOfTheirRegistries: the other is down since before they came, and no hook has them wait for it.
func TestPanicCountsPodsThatAreInOneOfTheirRegistries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new").Fail(anyCall(), errors.New("down"))
	web := w.cloneSet("web", inRegistries("default,new"), func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle.PreNormal = nil })
	pods := []*corev1.Pod{w.bornPod(web, "web-1", inState(appspub.LifecycleStateNormal)), w.bornPod(web, "web-2", inState(appspub.LifecycleStateNormal))}
	for _, pod := range pods {
		w.reconcile(pod)
		w.tell(pod)
	}
	for _, pod := range pods {
		w.turn(pod, unready)
	}
	for _, pod := range pods {
		w.reconcile(pod)
		w.expectInService(pod)
	}
}

// TestRegistryThatWasNeverAskedHoldsNoPod: its circuit breaker has been open since the pod came.
func TestRegistryThatWasNeverAskedHoldsNoPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.withRegistry("new")
	other.Fail(anyCall(), errors.New("down"))
	nothing := w.listing(Listing{Server: other})
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
	w.expectWaits("it shows in the metric", Wait{Reason: "PanicThreshold", Since: w.clock.Now()})
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

func TestPanicCountsWhatTheCacheHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pods := w.servingPods(2)
	w.turn(pods[0], unready)
	w.changePod(pods[1], unready) // its event is still on its way
	w.reconcile(pods[1])
	w.expectJournal("the pod that is read counts as it was read")
	w.expectEvents("", "Warning PanicThreshold 2 of the 2 pods")
}

func TestPodCountsOnceForEachService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	web := w.cloneSet("web", inRegistries("default,new"))
	pod := w.servingPod(web, "web-1")
	w.tell(pod)
	w.turn(pod, unready)
	w.reconciles(pod, "it is the last of its service, in whatever many registries")
	w.expectEvents("", "Warning PanicThreshold 1 of the 1 pods")
}
