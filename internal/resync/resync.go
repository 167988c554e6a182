// Package resync keeps the registry in step with the cluster besides the reconciler, which looks at one pod at a time: it
// compares the whole registry with the whole cluster, and renews what a registry would forget.
package resync

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// Policy is how often registries are compared, and how much may be removed without being asked.
type Policy struct {
	// Interval is how long after one run the next one begins, at the latest.
	Interval time.Duration
	// MaxRemovals is how many of the cluster's entries in a registry may go in one run: a number, or a percentage, which
	// is rounded up and never means fewer than 3, unless it is 0%. See [keeper.due].
	MaxRemovals intstr.IntOrString
}

// Pods is what the cluster has, and what this process knows of it. It is safe for concurrent use.
type Pods interface {
	// Compare holds a list against what the registry acknowledged, and has the pods looked at where the two differ. Once
	// the cache of pods has synced, only entries whose pod it lacks are unknown.
	Compare(ctx context.Context, l tracker.Listing) (tracker.Comparison, error)
	// Gone returns those of the unknown entries behind which no live pod stands, by the API server's own word.
	Gone(ctx context.Context, unknown []registry.Entry) ([]registry.Entry, error)
	// Kept returns the instances of a registry whose Register or FailOver was acknowledged, without those for which a
	// Deregister has begun since.
	Kept(registry string) []registry.Instance
	// Steered returns which applications' entries a registry has acknowledged to be in service, or which to be out of it.
	Steered(registry string, in bool) []registry.Instance
	// Answered notes what a registry, asked at that time, said of an application's entry, and has its pod looked at where that is not
	// what it has acknowledged.
	Answered(target tracker.Target, state registry.State, asked time.Time) (differs bool)
	// Lost notes that the registry, asked at that time, had no entry for the instance.
	Lost(target tracker.Target, asked time.Time)
}

// Options are what a Resync works with.
type Options struct {
	// Cluster is the owner in the marks of this cluster's entries, and Identity tells the cluster from another one with that name.
	Cluster  string
	Identity *clusterstate.Identity
	// Namespaces are those whose pods this process knows; none means all. Entries of others are left alone.
	Namespaces []string
	Pods       Pods
	// Synced reports whether the cache of pods is filled. Nothing is removed before.
	Synced func() bool
	// ApproveBy is the command by which a person approves of a removal on the manager's Lease; empty where there is none.
	ApproveBy string
	// Tell makes an Event for a person, besides the log.
	Tell func(ctx context.Context, kind, reason, note string)
	// Listed is closed once each of the first registries was listed, or could not be, or took longer than one call may.
	Listed  chan<- struct{}
	Metrics *metrics.ResyncMetrics
	// Audit writes down what receipts are made from. Nil is for no receipts.
	Audit  *audit.Log
	Logger logr.Logger
}

// Resync compares every registry with the cluster: at start, after each interval, when the configuration changed, and when
// [Resync.Run] is called. The reconciler repairs what is missing or differs, so that one pod has one writer. Resync removes
// entries behind which no live pod stands, and renews those that expire.
//
// A run lists a registry in one call, all of it or nothing. It removes nothing before the cache has synced and after an error. When
// more than Policy.MaxRemovals would go, it removes no more than these of what was written for this very cluster, and nothing else
// unless a person has approved of that.
type Resync struct {
	Options

	applied chan struct{}

	mu       sync.Mutex
	policy   Policy
	keepers  map[string]*keeper // replaced, never changed
	approved []string
}

// New returns a Resync for no registry yet.
func New(o Options) *Resync {
	return &Resync{Options: o, applied: make(chan struct{}, 1)}
}

// Apply says which registries there are from now on, and has all of them compared at once. It may be called at any time.
func (r *Resync) Apply(policy Policy, registries registryclient.Registries) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]*keeper, len(registries))
	for name, client := range registries {
		before := r.keepers[name]
		k := before
		if k == nil || k.client != client {
			k = newKeeper(r, name, client)
		}
		if k.continues(before) {
			k.shown = before.shown
		}
		poke(k.kick)
		next[name] = k
	}
	r.policy, r.keepers = policy, next
	r.Metrics.Interval(policy.Interval)
	poke(r.applied)
}

// poke has the next receive from the channel succeed.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it does already
	}
}

// Run has every registry compared now, as a person asks, and tells once more of removals that are blocked.
func (r *Resync) Run() {
	_, keepers := r.inForce()
	for _, k := range keepers {
		k.asked.Store(true)
		poke(k.kick)
	}
}

// Approve says which removals a person has approved of, by their digests, and has every registry compared now where there
// is a new one. It replaces what was approved before.
func (r *Resync) Approve(digests []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew := slices.ContainsFunc(digests, func(d string) bool { return !slices.Contains(r.approved, d) })
	r.approved = slices.Clone(digests)
	if isNew {
		for _, k := range r.keepers {
			poke(k.kick)
		}
	}
}

func (r *Resync) isApproved(digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.approved, digest)
}

// Status is what came of the last runs for one registry.
type Status struct {
	// Lists: the driver can say what there is, so there are runs.
	Lists bool `json:"lists"`
	// Succeeded is when the registry was last compared with the cluster; zero where it was not yet.
	Succeeded time.Time `json:"resynced,omitzero"`
	// Failure is what went wrong in the last run; empty where nothing did.
	Failure string `json:"resyncFailure,omitempty"`
	// RemovalsBlocked: entries without a live pod stay, since they are more than may go unasked.
	RemovalsBlocked bool `json:"removalsBlocked,omitempty"`
	// Held are those entries; nil where there are none. It is never changed.
	Held *orders.Held `json:"heldRemovals,omitempty"`
}

// Status returns the state of each registry in force, by its name.
func (r *Resync) Status() map[string]Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]Status, len(r.keepers))
	for name, k := range r.keepers {
		status := k.shown
		status.Lists = k.client.Lists()
		all[name] = status
	}
	return all
}

// Start compares and renews until the context ends, and returns when nothing is under way. It is a manager.Runnable, and
// needs the lease: only the leader may remove anything, and only the leader knows what to renew.
func (r *Resync) Start(ctx context.Context) error {
	var first sync.WaitGroup
	defer first.Wait()
	first.Go(func() { r.announce(ctx) })
	running := map[string]*keeper{}
	for ctx.Err() == nil {
		_, keepers := r.inForce()
		r.replace(ctx, running, keepers)
		select {
		case <-ctx.Done():
		case <-r.applied:
		}
	}
	r.replace(ctx, running, nil)
	return nil
}

// replace ends the keepers that run and are not in force, and then starts those that are in force and don't run: one
// registry never has two.
func (r *Resync) replace(ctx context.Context, running, inForce map[string]*keeper) {
	ended := map[string]*keeper{}
	for name, k := range running {
		if inForce[name] != k {
			k.stop()
			ended[name] = k
			delete(running, name)
		}
	}
	for name, k := range ended {
		k.loops.Wait()
		if ctx.Err() == nil && !inForce[name].continues(k) {
			r.Metrics.Forget(name)
		}
		if ctx.Err() == nil && inForce[name] == nil {
			k.lead(0)
		}
	}
	for name, k := range inForce {
		if running[name] == nil {
			k.start(ctx, ended[name])
			running[name] = k
		}
	}
}

// announce says that the first lists are there, and waits for none longer than for a call.
func (r *Resync) announce(ctx context.Context) {
	defer close(r.Listed)
	began := time.Now()
	_, keepers := r.inForce()
	for _, k := range keepers {
		select {
		case <-k.listed:
		case <-time.After(k.client.Timeout() - time.Since(began)):
		case <-ctx.Done():
			return
		}
	}
}

// inForce returns the last configuration.
func (r *Resync) inForce() (Policy, map[string]*keeper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy, r.keepers
}

// has reports whether the keeper is in force. One that is not has a client that was closed, or will be.
func (r *Resync) has(k *keeper) bool {
	_, keepers := r.inForce()
	return keepers[k.name] == k
}
