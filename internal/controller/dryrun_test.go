package controller

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

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
