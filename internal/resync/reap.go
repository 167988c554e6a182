package resync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// reapAtOnce bounds the removals that are under way, which are not urgent.
	reapAtOnce = 8
	// hopeless is how many removals have to fail in a row for a run to begin no more of them.
	hopeless = 5
)

// errLeft is of a removal that was not begun, since those before it failed.
var errLeft = errors.New("left for the next run")

// reap removes entries behind which no live pod stands, unless they are too many of those that the cluster owns. The
// registry spares those that are another pod's by now.
func (k *keeper) reap(ctx context.Context, gone []registry.Entry, owned int) error {
	if !k.mayRemove(ctx, gone, owned) {
		k.resync.Metrics.Unfinished(k.name, 0) // this run tried none
		return nil
	}
	// Those that failed go last, the latest behind: some that can never be removed must not keep all others.
	slices.SortStableFunc(gone, func(a, b registry.Entry) int {
		return k.failed[identityOf(a.Instance)].Compare(k.failed[identityOf(b.Instance)])
	})
	errs := make([]error, len(gone))
	var inARow atomic.Int64
	var group errgroup.Group
	group.SetLimit(reapAtOnce)
	for i, e := range gone {
		if inARow.Load() >= hopeless {
			errs[i] = errLeft
			continue
		}
		group.Go(func() error {
			errs[i] = k.deregister(ctx, e.Instance)
			if errs[i] == nil {
				inARow.Store(0)
			} else if registryclient.Classify(errs[i]) != registryclient.DryRun {
				inARow.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait() // each error is in errs
	return k.noteRemoved(gone, errs)
}

func (k *keeper) deregister(ctx context.Context, in registry.Instance) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return k.client.Change(ctx, registryclient.Caller{}, registry.Change{Instance: in, State: registry.Absent})
}

// noteRemoved writes down what went, and returns an error for what did not.
func (k *keeper) noteRemoved(gone []registry.Entry, errs []error) error {
	now := time.Now()
	removed, failed, left := 0, 0, 0
	var last error
	before := k.failed
	k.failed = map[identity]time.Time{}
	for i, e := range gone {
		id := identityOf(e.Instance)
		switch {
		case registryclient.Classify(errs[i]) == registryclient.DryRun:
		case errors.Is(errs[i], errLeft):
			left++
			k.failed[id] = before[id]
		case errs[i] != nil:
			failed, last = failed+1, errs[i]
			k.failed[id] = now
		default:
			removed++
			k.removed[id] = now
			k.resync.Logger.Info("removed an entry without a live pod", "registry", k.name,
				"service", e.Service, "endpoint", e.Endpoint(), "pod", e.Namespace+"/"+e.Pod, "uid", e.UID)
		}
	}
	k.resync.Metrics.Found(k.name, metrics.FoundReaped, removed)
	k.resync.Metrics.Unfinished(k.name, failed+left)
	if failed == 0 {
		return nil
	}
	err := fmt.Errorf("removing entries without a live pod: %d of %d failed, the last: %w", failed, len(gone), last)
	if left > 0 {
		err = fmt.Errorf("%d removals failed in a row, and %d are left for the next run: %w", hopeless, left, err)
	}
	return err
}
