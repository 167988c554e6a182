package resync

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	syncRecheck = time.Second
	// Retries after errors come after 1 s, 2 s, 4 s…, up to the interval.
	firstRetry   = time.Second
	maxDoublings = 10
	// pause separates runs that have more to remove.
	pause = 5 * time.Second
)

// keeper compares one registry, renews what expires there, and reads applications' entries.
type keeper struct {
	resync     *Resync
	name       string
	client     *registryclient.Client
	heartbeats heartbeats
	stop       context.CancelFunc
	loops      sync.WaitGroup
	// kick starts the next run.
	kick chan struct{}
	// listed is closed after the first list, successful or not, or if there will be none.
	listed    chan struct{}
	hasListed func()

	// uid is this cluster's as of the run: all of a run sees the same. Empty if unknown.
	uid string
	// first is when the first successful list was requested.
	first time.Time
	// The next keeper of the same registry inherits what follows, up to places.
	removals
	others others
	copies copiesTold
	// members are how many servers the last Event listed.
	members int
	places  places
	// A registry that refuses removals was compared all the same.
	comparing, listing, removing trouble
	// shown needs the lock of the Resync.
	shown Status
	// asked: a person requested the run, perhaps because an Event has expired.
	asked atomic.Bool
}

func newKeeper(r *Resync, name string, client *registryclient.Client) *keeper {
	k := &keeper{
		resync: r, name: name, client: client, kick: make(chan struct{}, 1), listed: make(chan struct{}),
		removals: removals{tries: map[identity]try{}}, places: places{asked: map[string]attempt{}},
	}
	k.hasListed = sync.OnceFunc(func() { close(k.listed) })
	k.heartbeats = newHeartbeats(k)
	return k
}

// continues reports whether what the keeper before it for the same registry knows holds for it too. The file of a token may be replaced
// more often than an alert takes to fire.
func (k *keeper) continues(before *keeper) bool {
	return k != nil && before != nil && k.client.Lists() == before.client.Lists()
}

// start begins the loops, after before has ended.
func (k *keeper) start(ctx context.Context, before *keeper) {
	if k.continues(before) {
		k.removals, k.others, k.copies, k.members, k.places = before.removals, before.others, before.copies, before.members, before.places
	} else {
		k.resync.Metrics.Began(k.name, time.Now(), k.client.Lists())
	}
	if before != nil {
		k.heartbeats.served = before.heartbeats.served
	}
	ctx, k.stop = context.WithCancel(ctx)
	k.loops.Go(func() { k.compareAll(ctx) })
	k.loops.Go(func() { k.heartbeats.renewAll(ctx) })
	if apps := k.client.AppEntries(); apps != nil {
		w := &watch{keeper: k, client: apps, source: lifecycle.Source{Registry: k.name, Writer: lifecycle.Application}}
		k.loops.Go(func() { w.askAbout(ctx, registry.OutOfService) })
		k.loops.Go(func() { w.askAbout(ctx, registry.InService) })
	}
}

func (k *keeper) compareAll(ctx context.Context) {
	if !k.client.Lists() {
		k.hasListed()
		if k.client.CallsPods() || k.client.Follows() { // Rollcall has no entries there
			return
		}
		k.resync.Logger.Info("the driver can't list entries, so the registry is not compared with the cluster: "+
			"Rollcall does not notice entries that are missing there, or left by pods that end while no manager works", "registry", k.name)
		return
	}
	if k.client.PlaceTemplate() != "" || k.resync.Scope.ByLabel() { // the cache tells which places to list, and which entries count
		_ = wait.PollUntilContextCancel(ctx, syncRecheck, true, func(context.Context) (bool, error) { return k.resync.Synced(), nil })
	}
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.kick:
		case <-due:
		}
		due = time.After(k.turn(ctx))
	}
}

// run is one comparison with its outcome.
type run struct {
	began time.Time
	// listed counts what drivers return: entries with the cluster's name, and those of applications.
	listed int
	// owned counts this cluster's entries; unknown are those of pods that the reconciler has not seen.
	owned   int
	unknown []registry.Entry
	// coverage is what was listed.
	coverage lifecycle.Coverage
	// err failed the comparison, unlisted only that of some places, and unremoved only a removal.
	err, unlisted, unremoved error
	// more: removals are left for the next run.
	more bool
}

// turn returns when the next run is due.
func (k *keeper) turn(ctx context.Context) time.Duration {
	policy, _ := k.resync.inForce()
	k.uid = k.resync.Identity.Learn(ctx)
	synced := k.resync.Synced() // before, nothing counts as gone
	r := &run{began: time.Now()}
	r.err = k.compare(ctx, r)
	k.hasListed()
	if r.err == nil && synced {
		r.err = k.remove(ctx, r)
	}
	switch {
	case ctx.Err() != nil || !k.resync.has(k): // the closed client failed the run
		return policy.interval(0)
	case r.err == nil && !synced:
		_ = wait.PollUntilContextCancel(ctx, syncRecheck, false, func(context.Context) (bool, error) { return k.resync.Synced(), nil })
		return 0 // or never, if the context has ended
	}
	k.report(r)
	return k.next(r, policy.interval(r.listed))
}

func (k *keeper) next(r *run, interval time.Duration) time.Duration {
	if r.err != nil {
		return k.comparing.retry(interval)
	}
	next := min(k.removing.retry(interval), k.listing.retry(interval))
	if r.more {
		next = min(next, pause)
	}
	// Hooks may wait for a list that includes what earlier leaders wrote.
	if shown := time.Until(k.first.Add(k.client.Staleness())); shown > 0 {
		return min(next, shown)
	}
	return next
}

// report publishes the outcome.
func (k *keeper) report(r *run) {
	now, logger := time.Now(), k.resync.Logger.WithValues("registry", k.name)
	k.resync.Metrics.Ran(k.name, r.began, now, r.err != nil)
	k.resync.Metrics.Unlisted(k.name, r.coverage.Unlisted())
	k.comparing.tell(logger, r.err, "resync fails, and drift of the registry goes unnoticed until it succeeds again",
		"resync succeeds again")
	if r.err == nil { // else nothing was removed
		k.listing.tell(logger, r.unlisted, "listing some places fails, and what they have is not known until it succeeds again",
			"listing all places succeeds again")
		k.removing.tell(logger, r.unremoved, "removing entries without a live pod fails, retrying",
			"removing entries without a live pod succeeds again")
	}
	failure := ""
	if failed := cmp.Or(r.err, r.unlisted, r.unremoved); failed != nil {
		failure = registry.Excerpt(failed.Error())
	}
	k.resync.mu.Lock()
	defer k.resync.mu.Unlock()
	if k.shown.Failure = failure; r.err == nil {
		k.shown.Succeeded = now
	}
}

// trouble logs a series of failures once.
type trouble struct {
	failures int
	last     error
}

// tell logs the first failure, and the recovery with their number.
func (t *trouble) tell(logger logr.Logger, err error, begins, passes string) {
	switch {
	case err != nil:
		t.last = err
		if t.failures++; t.failures == 1 {
			logger.Error(err, begins)
		}
	case t.failures > 0:
		logger.Info(passes, "failures", t.failures, "lastFailure", t.last.Error())
		*t = trouble{}
	}
}

func (t *trouble) retry(interval time.Duration) time.Duration {
	if t.failures == 0 {
		return jittered(interval)
	}
	return min(firstRetry<<min(t.failures-1, maxDoublings), jittered(interval))
}

// jittered is 90–100% of the interval, so that registries and clusters don't all start together.
func jittered(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Int64N(int64(interval)/10+1)) //nolint:gosec // not a secret
}

func (k *keeper) compare(ctx context.Context, r *run) error {
	staleness := k.client.Staleness()
	owned, foreign, err := k.list(ctx, r)
	if err != nil {
		return err
	}
	k.tellOfMembers(ctx)
	k.lookForOthers(ctx, owned, r.coverage)
	_, keepers := k.resync.inForce()
	names := make(map[string]bool, len(keepers))
	for name := range keepers {
		names[name] = true
	}
	k.tellOfCopies(ctx, foreign, names)
	found, err := k.resync.Pods.Compare(ctx, tracker.Listing{
		Registry: k.name, Names: names, Asked: r.began, Staleness: staleness,
		Confirms: staleness == 0 && !k.client.Expires(), Entries: owned, Foreign: foreign,
		Coverage: r.coverage, ClusterUID: k.uid,
	})
	if err != nil {
		return err
	}
	if k.first.IsZero() {
		k.first = r.began
	}
	r.owned, r.unknown = len(owned), found.Unknown
	for _, former := range found.Renamed { // across a restart
		k.resync.History.Renamed(k.name, former)
	}
	k.resync.Metrics.Found(k.name, metrics.FoundMissing, len(found.Missing))
	k.resync.Metrics.Found(k.name, metrics.FoundDifferent, found.Different)
	if len(found.Missing)+found.Different > 0 {
		k.resync.Logger.Info("registry drift detected, reapplying", "registry", k.name,
			"missing", len(found.Missing), "different", found.Different)
	}
	return nil
}

// list drops entries that are not this cluster's, whatever the driver returns.
func (k *keeper) list(ctx context.Context, r *run) (owned, foreign []registry.Entry, err error) {
	var entries []registry.Entry
	if template := k.client.PlaceTemplate(); template != "" {
		entries, err = k.listPlaces(ctx, template, r)
	} else {
		entries, err = k.client.List(ctx, k.resync.Cluster)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listing: %w", err)
	}
	r.listed = len(entries)
	for _, e := range entries {
		switch {
		case e.State == registry.Foreign:
			foreign = append(foreign, e)
		case k.owns(e):
			owned = append(owned, e)
		}
	}
	return owned, foreign, nil
}

// owns is false for names that no pod can have, for which the API server refuses to look: anyone can write such entries.
func (k *keeper) owns(e registry.Entry) bool {
	return e.Cluster == k.resync.Cluster && e.UID != "" && canBeNamed(e.Pod) && canBeNamed(e.Namespace) &&
		!k.resync.Scope.Excludes(e.Namespace)
}

func canBeNamed(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }
