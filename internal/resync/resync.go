// Package resync compares whole registries with the cluster, and sends heartbeats.
package resync

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// Policy is when to compare, and how much to remove unasked.
type Policy struct {
	// Interval is the longest pause between two runs; with zero it follows from the number of entries.
	Interval time.Duration
	// MaxRemovals limits the removals of one run per registry; see [allowed].
	MaxRemovals intstr.IntOrString
}

// interval is the longest pause after a run that listed so many entries. By default lists bring 10,000 entries a minute on average, and
// what others change is found within ten minutes: RollcallResyncFails fires after 15.
func (p Policy) interval(entries int) time.Duration {
	const shortest, longest, perEntry = time.Minute, 10 * time.Minute, time.Minute / 10_000
	if p.Interval > 0 {
		return p.Interval
	}
	return min(max(shortest, time.Duration(entries)*perEntry), longest)
}

// Pods must be safe for concurrent use.
type Pods interface {
	// Compare compares a list with what was acknowledged, and queues the pods that differ. Once the cache has synced, only entries whose pod
	// it lacks are unknown.
	Compare(ctx context.Context, l tracker.Listing) (tracker.Comparison, error)
	// Places are those in which a registry with a PlaceTemplate ([registry.Traits]) has or may have entries of pods: where the cached ones
	// belong, and where they are known to be. They are by the pods' namespace.
	Places(ctx context.Context, registry, template string) (map[string]map[string]bool, error)
	// Gone returns the entries for which the API server has no live pod.
	Gone(ctx context.Context, unknown []registry.Entry) ([]registry.Entry, error)
	// Kept returns acknowledged instances that nothing has begun to deregister.
	Kept(registry string) []registry.Instance
	// Steered returns the applications' entries acknowledged as in rotation, or as out.
	Steered(registry string, in bool) []registry.Instance
	// Answered queues the pod if the state differs from what was acknowledged.
	Answered(target tracker.Target, state registry.State, asked time.Time) (differs bool)
	// RemovalMayLand notes that a removal may be carried out until then, whoever has the endpoint by that time.
	RemovalMayLand(target tracker.Target, now, until time.Time)
	// Missing notes that the registry had no entry when asked.
	Missing(target tracker.Target, asked time.Time)
}

// Options are what New needs.
type Options struct {
	// Cluster is the name in ownership tags; Identity tells two clusters with one name apart.
	Cluster  string
	Identity *clusterstate.Identity
	// Scope are the namespaces whose entries count.
	Scope *clusterstate.Scope
	Pods  Pods
	// Synced: the pod cache is filled. Nothing is removed before.
	Synced func() bool
	// LeaseNamespace has the lease on which a person approves; empty without one.
	LeaseNamespace string
	// Tell sends an Event.
	Tell func(ctx context.Context, kind, reason, note string)
	// Listed is closed once each initial registry was listed, failed, or took longer than its timeout.
	Listed  chan<- struct{}
	Metrics *metrics.ResyncMetrics
	History history.Log
	Logger  logr.Logger
}

// Resync compares every registry with the cluster at start, after each interval, with each new configuration, and on [Resync.Run]:
//
//	missing or different entry   left to the reconciler: one pod has one writer
//	entry without a live pod     removed, as [keeper.due] allows
//	entry that expires           renewed
//
// Nothing is removed after an error, or before the cache has synced.
type Resync struct {
	Options

	applied chan struct{}

	mu        sync.Mutex
	policy    Policy
	keepers   map[string]*keeper // replaced, never changed
	approvals approvals
}

// New returns a Resync without registries.
func New(o Options) *Resync {
	return &Resync{Options: o, applied: make(chan struct{}, 1)}
}

// Apply replaces the registries and compares them all. It can be called at any time.
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
	r.approvals.keep(func(registry string) bool { return next[registry] != nil })
	r.Metrics.Interval(policy.interval(0))
	poke(r.applied)
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it does already
	}
}

// Run compares all registries on a person's request, and repeats the Events of held removals.
func (r *Resync) Run() {
	_, keepers := r.inForce()
	for _, k := range keepers {
		k.asked.Store(true)
		poke(k.kick)
	}
}

// Approve takes the digests that a person has given, and compares all registries if one counts from now on. It returns those that count
// no more, or never did: see [approvals].
func (r *Resync) Approve(digests []string) (spent []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew, spent := r.approvals.take(digests)
	if isNew {
		for _, k := range r.keepers {
			poke(k.kick)
		}
	}
	return spent
}

func (r *Resync) isApproved(digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.approvals.counts(digest)
}

// asks shows the removals that a registry holds back, and replaces the digests that a person may approve, or has approved and that are not
// used up.
func (r *Resync) asks(k *keeper, digests []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.approvals.open(k.name, digests)
	k.shown.RemovalsBlocked, k.shown.Held = k.held != nil, k.held
}

// Status is the outcome of a registry's last runs.
type Status struct {
	// Lists: without it there are no runs.
	Lists bool `json:"lists"`
	// Succeeded is when the last comparison succeeded.
	Succeeded       time.Time `json:"resynced,omitzero"`
	Failure         string    `json:"resyncFailure,omitempty"`
	RemovalsBlocked bool      `json:"removalsBlocked,omitempty"`
	// Held are the removals that wait for approval. It is never modified.
	Held *orders.Held `json:"heldRemovals,omitempty"`
}

// Status returns the state by registry.
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

// Start runs until the context ends and nothing is under way. Only the leader may: it alone may remove, and knows what to renew.
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

// replace stops a registry's keeper before it starts the next.
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
	}
	for name, k := range inForce {
		if running[name] == nil {
			k.start(ctx, ended[name])
			running[name] = k
		}
	}
}

// announce closes Listed.
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

func (r *Resync) inForce() (Policy, map[string]*keeper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy, r.keepers
}

// has reports whether the keeper is in force; otherwise its client is closed or will be.
func (r *Resync) has(k *keeper) bool {
	_, keepers := r.inForce()
	return keepers[k.name] == k
}
