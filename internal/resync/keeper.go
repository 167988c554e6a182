package resync

import (
	"cmp"
	"context"
	"fmt"
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
	// removals and others hold for the next keeper of the same servers too; others is of other clusters with this one's name.
	removals
	others others
	// comparing and removing fail each by itself: a registry that refuses a removal was compared all the same.
	comparing, removing trouble
	// shown is what [Resync.Status] says, under the lock of the Resync.
	shown Status
	// logged is the interval that the audit log has, 0 for none.
	logged time.Duration
	// asked: a person asked for the run, who may look for an Event that has expired since.
	asked atomic.Bool
}

func newKeeper(r *Resync, name string, client *registryclient.Client) *keeper {
	k := &keeper{
		resync: r, name: name, client: client, kick: make(chan struct{}, 1), listed: make(chan struct{}),
		removals: removals{tries: map[identity]try{}},
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
		k.removals, k.others = before.removals, before.others
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

// run is one comparison of the registry with the cluster, and what came of it.
type run struct {
	began time.Time
	// owned is how many entries are this cluster's, and unknown are those of pods that nobody has looked at.
	owned   int
	unknown []registry.Entry
	// err is why the registry was not compared or nobody knows what is gone, and unremoved why something that is gone is still there.
	err, unremoved error
	// more: this run has removed what it may, and the next one has more.
	more bool
	// line is that of the audit log.
	line receipt.Line
}

// turn makes one run and returns when the next one is due.
func (k *keeper) turn(ctx context.Context) time.Duration {
	policy, _ := k.resync.inForce()
	if k.resync.has(k) {
		k.lead(policy.Interval)
	}
	k.resync.Identity.Learn(ctx)
	synced := k.resync.Synced() // what is gone can't be known before
	r := &run{began: time.Now()}
	r.line = receipt.Line{
		Kind: receipt.Ran, Asked: r.began, Entry: receipt.Entry{Registry: k.name}, Seconds: policy.Interval.Seconds(),
	}
	r.err = k.compare(ctx, r)
	k.hasListed()
	if r.err == nil && synced {
		r.err = k.remove(ctx, r)
	}
	switch {
	case ctx.Err() != nil || !k.resync.has(k): // the client is closed, which is no failure
		return policy.Interval
	case r.err == nil && !synced:
		_ = wait.PollUntilContextCancel(ctx, syncRecheck, false, func(context.Context) (bool, error) { return k.resync.Synced(), nil })
		return 0 // or never, where the context has ended
	}
	k.report(r)
	return k.next(r, policy.Interval)
}

// next is when the next run is due.
func (k *keeper) next(r *run, interval time.Duration) time.Duration {
	if r.err != nil {
		return k.comparing.retry(interval)
	}
	next := k.removing.retry(interval)
	if r.more {
		next = min(next, pause)
	}
	// Hooks may wait for a list that has all that the leaders before this one left.
	if shown := time.Until(k.first.Add(k.client.Staleness())); shown > 0 {
		return min(next, shown)
	}
	return next
}

// report tells in the metrics, the log, the audit log and the status what came of a run. For the audit log, a removal that waits for a
// person's approval is one that the run need not make.
func (k *keeper) report(r *run) {
	now, logger := time.Now(), k.resync.Logger.WithValues("registry", k.name)
	k.resync.Metrics.Ran(k.name, r.began, now, r.err != nil)
	k.comparing.tell(logger, r.err, "resync fails, and drift of the registry goes unnoticed until it succeeds again",
		"resync succeeds again")
	if r.err == nil { // else it says nothing of removals
		k.removing.tell(logger, r.unremoved, "removing entries without a live pod fails, retrying",
			"removing entries without a live pod succeeds again")
	}
	failure, otherwise := "", receipt.Acknowledged
	if failed := cmp.Or(r.err, r.unremoved); failed != nil {
		failure = registry.Excerpt(failed.Error())
	} else if k.held != nil {
		otherwise = receipt.RemovalsBlocked
	}
	r.line.Outcome = cmp.Or(failure, otherwise)
	k.resync.Audit.Write(r.line)
	k.resync.mu.Lock()
	defer k.resync.mu.Unlock()
	if k.shown.Failure = failure; r.err == nil {
		k.shown.Succeeded, k.shown.RemovalsBlocked, k.shown.Held = now, k.held != nil, k.held
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

// compare holds the registry's list against the cluster.
func (k *keeper) compare(ctx context.Context, r *run) error {
	staleness := k.client.Staleness()
	owned, foreign, err := k.list(ctx)
	if err != nil {
		return err
	}
	k.lookForOthers(ctx, owned)
	_, keepers := k.resync.inForce()
	names := make(map[string]bool, len(keepers))
	for name := range keepers {
		names[name] = true
	}
	found, err := k.resync.Pods.Compare(ctx, tracker.Listing{
		Registry: k.name, Server: k.client.Server(), Names: names, Asked: r.began, Staleness: staleness,
		Confirms: staleness == 0 && !k.client.Expires(), Entries: owned, Foreign: foreign,
	})
	if err != nil {
		return err
	}
	if k.first.IsZero() {
		k.first = r.began
	}
	r.owned, r.unknown = len(owned), found.Unknown
	for _, m := range found.Missing {
		r.line.Missing = append(r.line.Missing, receipt.Entry{
			Registry: m.In.Registry, Namespace: m.Pod.Namespace, Pod: m.Pod.Name, UID: string(m.Pod.UID),
			Service: m.In.Service, Address: m.In.Address, Port: m.In.Port,
		})
	}
	for _, former := range found.Renamed { // with a restart, so no configuration before tells of it
		k.resync.Audit.Write(receipt.Line{Kind: receipt.Renamed, Former: former, Entry: receipt.Entry{Registry: k.name}})
	}
	k.resync.Metrics.Found(k.name, metrics.FoundMissing, len(found.Missing))
	k.resync.Metrics.Found(k.name, metrics.FoundDifferent, found.Different)
	if len(found.Missing)+found.Different > 0 {
		k.resync.Logger.Info("registry drift detected, reapplying", "registry", k.name,
			"missing", len(found.Missing), "different", found.Different)
	}
	return nil
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
