package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

func TestDryRunTellsTheNextStepAndWhatFollowsIt(t *testing.T) {
	t.Parallel()
	w := newDryRun(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	for range 2 {
		w.expectResult("nothing will be otherwise by itself", w.reconcile(pod), 0)
		w.expectJournal("the call, and the patch that would follow its acknowledgement", "would register web", "write web-1 failed")
	}
	w.expectHooks("nothing was written", pod, "inPlaceUpdate preDelete")
	w.expectEvents("it is no trouble")
	w.expectWaits("", Wait{Hook: "preNormal", Reason: "DryRun", Since: testEpoch()})

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconciles(pod, "what would have been in is taken out", "would failOver web", "write web-1 failed")
}

func TestDryRunForgetsAPodThatIsGone(t *testing.T) {
	t.Parallel()
	w := newDryRun(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.reconcile(pod)
	w.takeJournal()
	w.removePod(pod)
	if got := w.reconcile(pod); got != (reconcile.Result{}) {
		t.Errorf("it comes back for the pod: %+v", got)
	}
	w.expectJournal("what it would leave", "would deregister web")
	w.expectNoPages("a dry run has nothing to undo")
}

func TestDryRunReleasesNothing(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, proceeds)
	w.patching(func(func() error) error { return registryclient.ErrDryRun })
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.registry.Fail(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.sleep(2 * time.Minute)
	w.takeEvents()
	w.reconcile(pod)
	w.expectEvents("the failure policy would release the hook, and has not", "Warning RolloutWaits pod web-1 has waited for 2m0s")
	w.expectReleases("so none is counted")
}

// newDryRun is a world in which the journal has every change, and each is refused.
func newDryRun(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, draining15s)
	w.apply(with(func(r *Registry) {
		r.DryRun = func(of registryclient.Subject) {
			w.note(fmt.Sprintf("would %s %s", of.Operation, of.Instance.Service))
		}
	}))
	w.patching(func(func() error) error { return registryclient.ErrDryRun })
	return w
}
