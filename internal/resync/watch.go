package resync

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// glance is how often the registry is asked for what has to be out of rotation: what put that back in may do so at any time.
	glance = 5 * time.Second
	// askAtOnce bounds the questions of one loop that are under way, as those of the heartbeats are: a registry may take a second
	// for each. They count among the registry's calls, behind all that is urgent.
	askAtOnce = atOnce
	// askShare: one loop takes at most a quarter of the slots, so that both together stay within the half that one service may have.
	askShare = 4
)

// watch asks a registry of applications' entries what it says of each instance. They carry no mark, so that no list tells
// which they are: what has to be out of rotation it asks for at every glance, and the rest once in the interval of resync,
// spread evenly. It removes nothing.
type watch struct {
	keeper *keeper
	client *registryclient.Client
	// name is that of the applications' entries in the keeper's registry.
	name string
}

// askForOut asks for what has to be out of rotation until the context ends. It has a loop of its own, so that what has to be in
// can't hold it up.
func (w *watch) askForOut(ctx context.Context) {
	var trouble trouble
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		w.tell(ctx, &trouble, registry.OutOfService, w.ask(ctx, w.keeper.resync.Pods.Steered(w.name, false)))
	}, glance)
}

// askForIn asks for what has to be in rotation until the context ends.
func (w *watch) askForIn(ctx context.Context) {
	r := w.keeper.resync
	from := time.Now()
	var trouble trouble
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		to := time.Now()
		policy, _ := r.inForce()
		in := r.Pods.Steered(w.name, true)
		due := slices.DeleteFunc(in, func(one registry.Instance) bool { return !isTurn(one, policy.Interval, from, to) })
		w.tell(ctx, &trouble, registry.InService, w.ask(ctx, due))
		from = to
	}, glance)
}

// tell logs when questions for what has to have a state begin to fail, and when they succeed again.
func (w *watch) tell(ctx context.Context, t *trouble, state registry.State, err error) {
	if ctx.Err() != nil || !w.keeper.resync.has(w.keeper) {
		return
	}
	t.tell(w.keeper.resync.Logger.WithValues("registry", w.name, "want", state), err,
		"asking for applications' entries fails, and what others change of them goes unnoticed until it succeeds again",
		"asking for applications' entries succeeds again")
}

// ask asks for each, and returns the first error.
func (w *watch) ask(ctx context.Context, instances []registry.Instance) error {
	var group errgroup.Group
	group.SetLimit(max(1, min(askAtOnce, w.client.Status().Slots/askShare)))
	for _, in := range instances {
		group.Go(func() error { return w.askFor(ctx, in) })
	}
	return group.Wait()
}

func (w *watch) askFor(ctx context.Context, in registry.Instance) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, asked := w.keeper.resync, time.Now()
	state, err := w.client.Get(ctx, registryclient.Caller{}, in)
	if err != nil {
		return err
	}
	if r.Pods.Answered(tracker.Target{Registry: w.name, Instance: in}, state, asked) {
		r.Metrics.Found(w.keeper.name, metrics.FoundDifferent, 1)
		r.Logger.Info("an application's entry is not what was acknowledged, reapplying", "registry", w.keeper.name,
			"service", in.Service, "endpoint", in.Endpoint(), "pod", in.Namespace+"/"+in.Pod, "state", state)
	}
	return nil
}
