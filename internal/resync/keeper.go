package resync

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// syncRecheck is how often the cache is looked at until it has synced.
	syncRecheck = time.Second
	// firstRetry is how soon after an error the next run begins; each further one doubles it, up to the interval.
	firstRetry   = time.Second
	maxDoublings = 10
	// pause is between the runs of many removals.
	pause = 5 * time.Second
)

// keeper looks after one registry: one goroutine compares it, one renews what expires, and where applications have entries of
// their own, two ask for them.
type keeper struct {
	resync     *Resync
	name       string
	client     *registryclient.Client
	heartbeats heartbeats
	stop       context.CancelFunc
	loops      sync.WaitGroup
	// kick has the next run begin at once.
	kick chan struct{}
	// listed is closed when the first list was compared, or failed, or there will be none.
	listed    chan struct{}
	hasListed func()

	// first is when the first list was asked for that came.
	first time.Time
	// removed is when this keeper's removals were acknowledged: a list that is older still has the entry.
	removed map[identity]time.Time
	// failed is when a removal last failed, of those that no later run has made up for.
	failed map[identity]time.Time
	// comparing and removing fail each by itself: a registry that refuses a removal was compared all the same.
	comparing, removing trouble
	// approval is the last that this registry was given.
	approval approval
	// shown is what [Resync.Status] says, under the lock of the Resync.
	shown Status
	// others is what is known of other clusters with this one's name.
	others others
	// told: an Event tells of the removals that take more than one run. hurry: there are more of them.
	told, hurry bool
	// held are the removals that an Event tells of; nil where none are.
	held *orders.Held
	// warned is when that Event was made.
	warned time.Time
	// logged is the interval that the audit log has, 0 for none.
	logged time.Duration
	// run is the line of the run in the audit log.
	run receipt.Line
	// asked: a person asked for the run, who may look for an Event that has expired since.
	asked atomic.Bool
}

func newKeeper(r *Resync, name string, client *registryclient.Client) *keeper {
	k := &keeper{
		resync: r, name: name, client: client, kick: make(chan struct{}, 1), listed: make(chan struct{}), removed: map[identity]time.Time{},
		failed: map[identity]time.Time{},
	}
	k.hasListed = sync.OnceFunc(func() { close(k.listed) })
	k.heartbeats = newHeartbeats(k)
	return k
}

// continues reports whether both keepers compare the same servers: what the one knows holds for the other. The file of a token
// may be replaced more often than an alert takes to fire.
func (k *keeper) continues(before *keeper) bool {
	if k == nil || before == nil {
		return false
	}
	return k.client.Server() == before.client.Server() && k.client.Lists() == before.client.Lists()
}

// start begins the loops. The keeper before it for the same registry, if there was one, has ended.
func (k *keeper) start(ctx context.Context, before *keeper) {
	if k.continues(before) {
		k.removed, k.failed, k.approval = before.removed, before.failed, before.approval
		k.held, k.warned, k.told, k.others = before.held, before.warned, before.told, before.others
	} else {
		k.resync.Metrics.Began(k.name, time.Now(), k.client.Lists())
	}
	if policy, _ := k.resync.inForce(); k.client.Lists() {
		k.lead(policy.Interval)
	} else if before != nil {
		before.lead(0)
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

// lead has the audit log tell how often the registry is compared from now on, 0 for no more, where that has changed.
func (k *keeper) lead(interval time.Duration) {
	if k.logged == interval {
		return
	}
	k.logged = interval
	k.resync.Audit.Write(receipt.Line{
		Kind: receipt.Leads, Entry: receipt.Entry{Registry: k.name}, Seconds: interval.Seconds(),
	})
}

// compareAll makes runs until the context ends.
func (k *keeper) compareAll(ctx context.Context) {
	if !k.client.Lists() {
		k.hasListed()
		k.resync.Logger.Info("the driver can't list entries, so the registry is not compared with the cluster: "+
			"Rollcall does not notice entries that are lost there, or left by pods that vanish while no manager works", "registry", k.name)
		return
	}
	var due <-chan time.Time // whoever puts the keeper in force wakes it
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

// turn makes one run and returns when the next one is due.
func (k *keeper) turn(ctx context.Context) time.Duration {
	policy, _ := k.resync.inForce()
	if k.resync.has(k) {
		k.lead(policy.Interval)
	}
	k.resync.Identity.Learn(ctx)
	began := time.Now()
	synced := k.resync.Synced() // what is gone can't be known before
	k.run = receipt.Line{
		Kind: receipt.Ran, Asked: began, Entry: receipt.Entry{Registry: k.name}, Seconds: policy.Interval.Seconds(),
	}
	unknown, owned, err := k.compare(ctx)
	k.hasListed()
	var unremoved error
	if err == nil && synced {
		err, unremoved = k.remove(ctx, unknown, owned)
	}
	if ctx.Err() != nil || !k.resync.has(k) { // the client is closed, which is no failure
		return policy.Interval
	}
	if err == nil && !synced {
		_ = wait.PollUntilContextCancel(ctx, syncRecheck, false, func(context.Context) (bool, error) { return k.resync.Synced(), nil })
		return 0 // or never, where the context has ended
	}
	ended := time.Now()
	k.resync.Metrics.Ran(k.name, began, ended, err != nil)
	k.report(ended, err, unremoved)
	logger := k.resync.Logger.WithValues("registry", k.name)
	k.comparing.tell(logger, err, "resync fails, and drift of the registry goes unnoticed until it succeeds again",
		"resync succeeds again")
	if err != nil { // it says nothing of removals
		return k.comparing.retry(policy.Interval)
	}
	k.removing.tell(logger, unremoved, "removing entries without a live pod fails, retrying",
		"removing entries without a live pod succeeds again")
	if k.first.IsZero() {
		k.first = began
	}
	next := k.removing.retry(policy.Interval)
	if k.hurry {
		next = min(next, pause)
	}
	// Hooks may wait for a list that has all that the leaders before this one left.
	if shown := k.first.Add(k.client.Staleness()); ended.Before(shown) {
		return min(next, shown.Sub(ended))
	}
	return next
}

// report says in the audit log and in the status what came of a run. For the log, a removal that waits for a person's approval is one
// that the run need not make.
func (k *keeper) report(ended time.Time, err, unremoved error) {
	failure, otherwise := "", receipt.Acknowledged
	if failed := cmp.Or(err, unremoved); failed != nil {
		failure = registry.Excerpt(failed.Error())
	} else if k.held != nil {
		otherwise = receipt.RemovalsBlocked
	}
	k.run.Outcome = cmp.Or(failure, otherwise)
	k.resync.Audit.Write(k.run)
	k.run = receipt.Line{}
	k.resync.mu.Lock()
	defer k.resync.mu.Unlock()
	if k.shown.Failure = failure; err == nil {
		k.shown.Succeeded, k.shown.RemovalsBlocked, k.shown.Held = ended, k.held != nil, k.held
	}
}

// trouble is something that may fail again and again.
type trouble struct {
	// failures counts those in a row, and last is the last of them.
	failures int
	last     error
}

// tell logs the first failure, and the first success after it with how many failures there were.
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

// retry is how soon the next run begins.
func (t *trouble) retry(interval time.Duration) time.Duration {
	if t.failures == 0 {
		return jittered(interval)
	}
	return min(firstRetry<<min(t.failures-1, maxDoublings), jittered(interval))
}

// jittered is within a tenth below the interval, so that the registries, and the managers of several clusters, do not come
// all at once.
func jittered(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Int64N(int64(interval)/10+1)) //nolint:gosec // it is no secret
}

// compare holds the registry's list against the cluster. It returns the unknown entries, and all that the cluster owns.
func (k *keeper) compare(ctx context.Context) (unknown, owned []registry.Entry, err error) {
	r, staleness := k.resync, k.client.Staleness()
	asked := time.Now()
	owned, foreign, err := k.list(ctx)
	if err != nil {
		return nil, nil, err
	}
	k.lookForOthers(ctx, owned)
	_, keepers := r.inForce()
	names := make(map[string]bool, len(keepers))
	for name := range keepers {
		names[name] = true
	}
	found, err := r.Pods.Compare(ctx, tracker.Listing{
		Registry: k.name, Server: k.client.Server(), Names: names, Asked: asked, Staleness: staleness,
		Confirms: staleness == 0 && !k.client.Expires(), Entries: owned, Foreign: foreign,
	})
	if err != nil {
		return nil, nil, err
	}
	for _, m := range found.Missing {
		k.run.Missing = append(k.run.Missing, receipt.Entry{
			Registry: m.In.Registry, Namespace: m.Pod.Namespace, Pod: m.Pod.Name, UID: string(m.Pod.UID),
			Service: m.In.Service, Address: m.In.Address, Port: m.In.Port,
		})
	}
	for _, former := range found.Renamed { // with a restart, so no configuration before tells of it
		k.resync.Audit.Write(receipt.Line{Kind: receipt.Renamed, Former: former, Entry: receipt.Entry{Registry: k.name}})
	}
	r.Metrics.Found(k.name, metrics.FoundMissing, len(found.Missing))
	r.Metrics.Found(k.name, metrics.FoundDifferent, found.Different)
	if len(found.Missing)+found.Different > 0 {
		r.Logger.Info("registry drift detected, reapplying", "registry", k.name,
			"missing", len(found.Missing), "different", found.Different)
	}
	return k.notRemovedSince(asked.Add(-staleness), found.Unknown), owned, nil
}

// remove removes those of the unknown entries that are gone. With err it is not known which are, and unremoved is of what
// could not be removed.
func (k *keeper) remove(ctx context.Context, unknown, owned []registry.Entry) (err, unremoved error) {
	gone, err := k.resync.Pods.Gone(ctx, unknown)
	if err != nil {
		return fmt.Errorf("asking the API server which pods are gone: %w", err), nil
	}
	gone, later := k.due(ctx, gone, len(owned))
	if unremoved = k.reap(ctx, gone, later); unremoved != nil {
		return nil, unremoved // each run finds the same anew, and the log would hold nothing else
	}
	for _, e := range gone {
		k.run.Gone = append(k.run.Gone, receipt.EntryOf(k.name, e.Instance))
	}
	return nil, nil
}

// list asks for all entries in one call, and returns the cluster's own and the foreign ones. It leaves out what others own,
// whatever the driver says, and what stands in a namespace of which this process knows nothing.
func (k *keeper) list(ctx context.Context) (owned, foreign []registry.Entry, err error) {
	entries, err := k.client.List(ctx, k.resync.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("listing: %w", err)
	}
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

// owns is false of names that no pod can have: anyone can write such an entry, and the API server refuses to look for it.
func (k *keeper) owns(e registry.Entry) bool {
	return e.Cluster == k.resync.Cluster && e.UID != "" && canBeNamed(e.Pod) && canBeNamed(e.Namespace) &&
		(len(k.resync.Namespaces) == 0 || slices.Contains(k.resync.Namespaces, e.Namespace))
}

func canBeNamed(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

// notRemovedSince leaves out what this keeper has removed after a list of that time.
func (k *keeper) notRemovedSince(asOf time.Time, entries []registry.Entry) []registry.Entry {
	maps.DeleteFunc(k.removed, func(_ identity, at time.Time) bool { return !at.After(asOf) })
	return slices.DeleteFunc(entries, func(e registry.Entry) bool {
		_, old := k.removed[identityOf(e.Instance)]
		return old
	})
}
