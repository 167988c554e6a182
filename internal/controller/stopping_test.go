package controller

import (
	"context"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func TestManagerThatStopsBeginsNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proceeds)
	pod := w.servingPod(w.cloneSet("web", twoServices), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.sleep(2 * time.Minute) // the manager was away, and the failure policy waits for one
	ctx, stop := context.WithCancel(w.Context())
	w.registry.OnAnswer(fakeregistry.Match{}, func(fakeregistry.Call) { stop() })
	_, err := w.r.Reconcile(ctx, lifecycle.PodIDOf(pod))
	w.must(err, "reconciling while the manager stops")
	w.expectJournal("the second service is left to the next manager", "Deregister admin@10.0.0.1:9090", writes)
	w.expectHooks("one of two was never asked, and the failure policy is for registries that fail", pod, "inPlaceUpdate preDelete")
	w.expectReleases("nothing is let go")
	w.expectEvents("nothing is wrong")

	w.restart()
	w.reconciles(pod, "the next one trusts no call but its own", "Deregister admin@10.0.0.1:9090", deregisters, writes)
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
	_, err := w.r.Reconcile(ctx, lifecycle.PodIDOf(pod))
	w.must(err, "reconciling")
	w.expectJournal("it was registered, and it is not known whether it serves", registers)
	w.expectEvents("nothing is wrong")
}

// probes is a Prober.
type probes func() error

func (p probes) Probe(context.Context, registry.Instance) error { return p() }
