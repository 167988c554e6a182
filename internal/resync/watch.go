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
	// glance is how often entries that must be out are read: whatever put one back may do it at any time.
	glance = 5 * time.Second
	// askAtOnce limits the reads of one loop: each may take a second.
	askAtOnce = 24
)

// watch reads applications' entries one by one, since lists don't show them. It removes nothing.
//
//	must be out   read every 5 s
//	must be in    read once per resync.interval, or a minute, spread evenly
type watch struct {
	keeper *keeper
	client *registryclient.Client
	source lifecycle.Source
}

// askAbout loops until the context ends. Each state has its own loop, so that those that must be out never wait for others.
func (w *watch) askAbout(ctx context.Context, state registry.State) {
	r, in := w.keeper.resync, state == registry.InService
	logger := r.Logger.WithValues("registry", w.source.String(), "want", state)
	from := time.Now()
	var trouble trouble
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		to := time.Now()
		policy, _ := r.inForce()
		interval := policy.interval(0) // which must not change with each entry: it makes the turns
		err := w.ask(ctx, slices.DeleteFunc(r.Pods.Steered(w.keeper.name, in), func(one registry.Instance) bool {
			return in && !isTurn(one, interval, from, to)
		}))
		if from = to; ctx.Err() == nil && r.has(w.keeper) {
			trouble.tell(logger, err,
				"asking for applications' entries fails, and what others change of them goes unnoticed until it succeeds again",
				"asking for applications' entries succeeds again")
		}
	}, glance)
}

// ask returns the first error.
func (w *watch) ask(ctx context.Context, instances []registry.Instance) error {
	var group errgroup.Group
	group.SetLimit(askAtOnce)
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
	state, err := w.client.Read(ctx, in)
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
