package resync

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
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
	// source is the applications' entries in the keeper's registry.
	source lifecycle.Source
}

// askAbout asks for what has to have the state until the context ends, and logs when that begins to fail and succeeds again. Each
// state has a loop of its own, so that what has to be in can't hold up what has to be out.
func (w *watch) askAbout(ctx context.Context, state registry.State) {
	r, in := w.keeper.resync, state == registry.InService
	logger := r.Logger.WithValues("registry", w.source.String(), "want", state)
	from := time.Now()
	var trouble trouble
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		to := time.Now()
		policy, _ := r.inForce()
		err := w.ask(ctx, slices.DeleteFunc(r.Pods.Steered(w.keeper.name, in), func(one registry.Instance) bool {
			return in && !isTurn(one, policy.Interval, from, to)
		}))
		if from = to; ctx.Err() == nil && r.has(w.keeper) {
			trouble.tell(logger, err,
				"asking for applications' entries fails, and what others change of them goes unnoticed until it succeeds again",
				"asking for applications' entries succeeds again")
		}
	}, glance)
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
	if r.Pods.Answered(tracker.Target{Registry: w.source.Registry, Writer: w.source.Writer, Instance: in}, state, asked) {
		r.Metrics.Found(w.keeper.name, metrics.FoundDifferent, 1)
		r.Logger.Info("an application's entry is not what was acknowledged, reapplying", "registry", w.keeper.name,
			"service", in.Service, "endpoint", in.Endpoint(), "pod", in.Namespace+"/"+in.Pod, "state", state)
	}
	return nil
}
