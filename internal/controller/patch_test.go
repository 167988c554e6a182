package controller

import (
	"errors"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestWriteThatFailsForLongIsShown(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, draining15s)
	away := func(func() error) error { return apierrors.NewInternalError(errors.New("failed calling webhook")) }
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	moved := w.clock.Now()
	draining := Wait{Hook: "inPlaceUpdate", Reason: "Draining", Since: moved}
	w.expectWaits("", draining)

	w.sleep(15 * time.Second)
	w.patching(away)
	for range 2 {
		w.reconcileFails(pod)
		w.sleep(waiting.RolloutPatience / 2)
	}
	w.expectEvents("most failures pass by themselves")
	w.expectWaits("the write may pass with the next try", draining)
	w.expectResult("the back-off has grown meanwhile", w.reconcile(pod), 4*backoffBase)
	w.expectWaits("a person has to look", Wait{Hook: "inPlaceUpdate", Reason: "APIServerFailed", Since: moved})
	w.reconcile(pod)
	w.expectEvents("once", "Warning RolloutWaits pod web-1 has waited for 1m15s, reason APIServerFailed: ",
		"Warning APIServerFailed hook inPlaceUpdate waits: patching the pod: Internal error occurred: failed calling webhook")

	w.patching(nil)
	w.reconcile(pod)
	w.expectHooks("", pod, "preDelete")
	w.expectEvents("a person may stop looking", "Normal Resolved APIServerFailed resolved")
	w.sleep(time.Hour)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.patching(away)
	w.reconcileFails(pod)
	w.expectEvents("another failure is given its time too")
}

func TestPodThatMovesOnWhileItIsArmed(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, guards)
	w.apply(func(s *choices) { s.Guard = false })
	w.deletePod(pod)
	w.patching(func(func() error) error { return patchTestFailed() })
	w.expectResult("the change brings us back, or this does", w.reconcile(pod), backoffBase)
	w.expectJournal("no call rests on what is past", writes+failed)
}

// TestPodThatIsDescribedAnewWhileItIsArmed: the answer to that write shows what the cache has yet to see.
func TestPodThatIsDescribedAnewWhileItIsArmed(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(*corev1.Pod){
		"by an annotation": annotated(service.AnnotationServices, "payments=8080"),
		"by a label":       func(pod *corev1.Pod) { pod.Labels["app"] = "payments" },
	}, func(t *testing.T, change func(*corev1.Pod)) {
		w := newWorld(t)
		pod := w.bornPod(w.cloneSet("web"), "web-1", func(p *corev1.Pod) { p.Finalizers = nil })
		w.beforeTheNextWrite(func() { w.changePod(pod, change) })
		w.expectResult("the change brings the pod back, or this does", w.reconcile(pod), backoffBase)
		w.expectJournal("no call rests on what is past", writes)
		w.expectHooks("it is armed", pod, "inPlaceUpdate preDelete")
		w.reconciles(pod, "as it is described now", "Register payments@10.0.0.1:8080", writes)
		w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
	})
}

// TestWhatTheCacheDropsIsNoChange: the answer to the arming write has it, and the pod as it was read has not.
func TestWhatTheCacheDropsIsNoChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", func(p *corev1.Pod) { p.Finalizers = nil })
	w.beforeTheNextWrite(func() { w.changePod(pod, annotated(corev1.LastAppliedConfigAnnotation, "{}")) })
	w.reconciles(pod, "it is described as before", writes, registers, writes)
}

func TestNothingIsWrittenOnADyingPodThatHoldsNothingOfOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web", func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Lifecycle.PreDelete = nil
		web.Spec.Template.Finalizers = []string{"other.io/backup"}
	})
	pod := w.servingPod(web, "web-1")
	w.deletePod(pod)
	w.reconciles(pod, "the record goes with the pod", deregisters)
}

func TestWriteThatAlwaysConflictsIsShown(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.patching(func(func() error) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-1", errors.New(`admission webhook "policy.example.com" denied it`))
	})
	w.reconcile(pod)
	w.expectEvents("the pod has moved on, most likely, and an event of that follows")
	w.sleep(waiting.RolloutPatience)
	w.reconcile(pod)
	w.expectEvents("it passes with no other event", "Warning RolloutWaits pod web-1 has waited for 1m0s, reason APIServerFailed: ",
		`Warning APIServerFailed hook inPlaceUpdate waits: the pod has moved on: Operation cannot be fulfilled on pods "web-1": admission webhook `+
			`"policy.example.com" denied it`)
}

// TestOwnWriteThatIsLost: the API server's store was restored from a backup, and no resource version will come up to that of the write.
func TestOwnWriteThatIsLost(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.r.memory.Of(lifecycle.PodIDOf(lifecycle.PodOf(pod))).Written = "1000000"
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectResult("the cache may lag", w.reconcile(pod), observe.StaleRecheck)
	w.sleep(waiting.RolloutPatience)
	w.reconcile(pod)
	w.expectHooks("the API server has no such write, so what it has counts", pod, "preDelete")
	w.expectEvents("nothing is left for a person to do")
}

// TestCacheThatIsBehindItsOwnWriteShows: a watch that hangs holds the pods, and somebody has to know.
func TestCacheThatIsBehindItsOwnWriteShows(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.stale = w.current(pod)
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.reconcile(pod) // which clears preNormal
	w.takeEvents()
	w.takeJournal()
	w.expectResult("the event of the write is on its way", w.reconcile(pod), observe.StaleRecheck)
	w.sleep(waiting.RolloutPatience - time.Second)
	w.expectResult("it may be slow", w.reconcile(pod), observe.StaleRecheck)
	w.sleep(time.Second)
	w.expectResult("no event will bring it", w.reconcile(pod), waiting.Longest)
	w.expectJournal("nothing is done on an old view")
	w.expectEvents("", "Warning RolloutWaits ", "Warning ManagerNotReady hook inPlaceUpdate waits: the manager's cache has not shown")
	w.expectWaits("", Wait{Hook: "inPlaceUpdate", Reason: "ManagerNotReady", Since: w.clock.Now().Add(-waiting.RolloutPatience)})

	w.stale = nil
	w.reconcile(pod)
	w.expectHooks("the cache follows again", pod, "preDelete")
	w.expectEvents("", "Normal Resolved ManagerNotReady")
}
