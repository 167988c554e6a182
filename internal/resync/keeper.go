package resync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// syncRecheck is how often the cache is looked at until it has synced.
	syncRecheck = time.Second
	// firstRetry is how soon after an error the next run begins; each further one doubles it, up to the interval.
	firstRetry   = time.Second
	maxDoublings = 10
)

// keeper compares one registry, in one goroutine at a time.
type keeper struct {
	resync *Resync
	source Source
	// kick has the next run begin at once.
	kick chan struct{}
	// listed is closed when the first list was compared, or failed, or there will be none.
	listed chan struct{}
	once   sync.Once

	// removed is when what was removed here was acknowledged: a list that is older still has it.
	removed map[identity]time.Time
	// failed is when a removal last failed, of those that no later run has made up for.
	failed map[identity]time.Time
	// comparing and removing are what fails, each by itself: a registry that refuses a removal was compared all the same.
	comparing, removing trouble
	// approval is the last that this registry was given.
	approval approval
	// blocked is the digest of the removal that a person was told of; empty where none is blocked.
	blocked string
	// began: the metrics know of it.
	began bool
	// told: a person knows that there is nothing to list.
	told bool
}

func newKeeper(r *Resync, source Source) *keeper {
	return &keeper{
		resync: r, source: source, kick: make(chan struct{}, 1), listed: make(chan struct{}), removed: map[identity]time.Time{},
	}
}

func (k *keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default: // it is on the way already
	}
}

func (k *keeper) hasListed() { k.once.Do(func() { close(k.listed) }) }

// loop makes runs until the context ends.
func (k *keeper) loop(ctx context.Context) {
	if !k.began {
		k.began = true
		k.resync.Metrics.Began(k.source.Name, k.resync.Clock.Now(), k.source.Client.Lists())
	}
	if !k.source.Client.Lists() {
		k.tellUnlistable()
		return
	}
	for ctx.Err() == nil {
		timer := k.resync.Clock.NewTimer(k.turn(ctx))
		select {
		case <-ctx.Done():
		case <-k.kick:
		case <-timer.C():
		}
		timer.Stop()
	}
}

func (k *keeper) tellUnlistable() {
	k.hasListed()
	if k.told {
		return
	}
	k.told = true
	k.resync.Logger.Info("the driver can't list entries, so the registry is not compared with the cluster: "+
		"Rollcall does not notice entries that are lost there, or left by pods that vanish while no manager works", "registry", k.source.Name)
}

// turn makes one run and returns when the next one is due.
func (k *keeper) turn(ctx context.Context) time.Duration {
	interval := k.resync.policyInForce().Interval
	began := k.resync.Clock.Now()
	whole, err, unremoved := k.run(ctx)
	if ctx.Err() != nil || !k.resync.has(k) { // what was replaced or dropped is retired, which is no failure
		return interval
	}
	if err == nil && !whole {
		k.awaitSync(ctx)
		return 0
	}
	k.resync.Metrics.Ran(k.source.Name, began, k.resync.Clock.Now(), err != nil)
	logger := k.resync.Logger.WithValues("registry", k.source.Name)
	k.comparing.tell(logger, err, "resync fails, and drift of the registry goes unnoticed until it succeeds again",
		"resync succeeds again")
	if err != nil { // it says nothing of removals
		return k.comparing.retry(interval)
	}
	k.removing.tell(logger, unremoved, "removing entries without a live pod fails, retrying",
		"removing entries without a live pod succeeds again")
	return k.removing.retry(interval)
}

// trouble is what may fail run after run.
type trouble struct {
	// failures counts the runs in a row in which it failed, and last is how it did in the last of them.
	failures int
	last     error
}

// tell logs the first failure, and when it has passed how many there were.
func (t *trouble) tell(logger logr.Logger, err error, begins, passes string) {
	switch {
	case err != nil:
		t.last = err
		if t.failures++; t.failures == 1 {
			logger.Error(err, begins)
		}
	case t.failures > 0:
		logger.Info(passes, "failedRuns", t.failures, "lastFailure", t.last.Error())
		*t = trouble{}
	}
}

// retry is how soon the next run begins.
func (t *trouble) retry(interval time.Duration) time.Duration {
	if t.failures == 0 {
		return jittered(interval)
	}
	return min(firstRetry<<min(t.failures-1, maxDoublings), jittered(interval))
}

// awaitSync returns once the cache has synced, or the context has ended.
func (k *keeper) awaitSync(ctx context.Context) {
	ticker := k.resync.Clock.NewTicker(syncRecheck)
	defer ticker.Stop()
	for !k.resync.Synced() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// jittered is within a tenth below the interval, so that the registries, and the managers of several clusters, do not come
// all at once.
func jittered(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Int64N(int64(interval)/10+1)) //nolint:gosec // nobody guesses it to any end
}

// run compares once, and removes what is gone. It is whole unless the cache has yet to sync: then nothing could be said of
// what is gone. With err the two were not compared, and unremoved is of what was found and could not be removed.
func (k *keeper) run(ctx context.Context) (whole bool, err, unremoved error) {
	r, staleness := k.resync, k.source.Client.Staleness()
	asked := r.Clock.Now()
	entries, foreign, err := k.list(ctx)
	defer k.hasListed()
	if err != nil {
		return false, err, nil
	}
	found, err := r.Pods.Compare(ctx, tracker.Listing{
		Registry: k.source.Name, Server: k.source.Client.Server(), Names: r.names(), Asked: asked, Staleness: staleness,
		Confirms: staleness == 0 && !k.source.Client.Expires(), Entries: entries, Foreign: foreign,
	})
	if err != nil {
		return false, err, nil
	}
	r.Metrics.Found(k.source.Name, metrics.FoundMissing, found.Missing)
	r.Metrics.Found(k.source.Name, metrics.FoundDifferent, found.Different)
	if found.Missing+found.Different > 0 {
		r.Logger.Info("registry drift detected, reapplying", "registry", k.source.Name,
			"missing", found.Missing, "different", found.Different)
	}
	k.hasListed()
	if !r.Synced() {
		return false, nil, nil
	}
	gone, err := r.Pods.Gone(ctx, k.notRemovedSince(asked.Add(-staleness), found.Unknown))
	if err != nil {
		return false, fmt.Errorf("asking the API server which pods are gone: %w", err), nil
	}
	return true, nil, k.reap(ctx, gone, entries)
}

// list asks for all that is ours, in one call. What others own is left out whatever the driver says, and so is what stands in
// a namespace of which this process knows nothing: another one may look after that. Foreign entries, which no Rollcall has
// written, are neither compared nor removed.
func (k *keeper) list(ctx context.Context) (ours, foreign []registry.Entry, err error) {
	entries, err := k.source.Client.List(ctx, k.resync.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("listing: %w", err)
	}
	for _, e := range entries {
		switch {
		case e.State == registry.Foreign:
			foreign = append(foreign, e)
		case k.ours(e):
			ours = append(ours, e)
		}
	}
	return ours, foreign, nil
}

// ours leaves out too what no pod can be called: anybody can write such an entry, and the API server is not to be asked for it.
func (k *keeper) ours(e registry.Entry) bool {
	return e.Cluster == k.resync.Cluster && e.UID != "" && canBeNamed(e.Pod) && canBeNamed(e.Namespace) &&
		(len(k.resync.Namespaces) == 0 || slices.Contains(k.resync.Namespaces, e.Namespace))
}

func canBeNamed(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

// notRemovedSince leaves out what was removed here after a list of that time.
func (k *keeper) notRemovedSince(asOf time.Time, entries []registry.Entry) []registry.Entry {
	for id, at := range k.removed {
		if !at.After(asOf) {
			delete(k.removed, id)
		}
	}
	return slices.DeleteFunc(entries, func(e registry.Entry) bool {
		_, old := k.removed[identityOf(e.Instance)]
		return old
	})
}
