package resync

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// Source is one registry.
type Source struct {
	// Name is the registry's in the configuration.
	Name string
	// Client asks it. Another client under a name is another registry.
	Client *registryclient.Client
}

// Policy is how often registries are compared, and how much may be removed without being asked.
type Policy struct {
	// Interval is how long after one run the next one begins, at the latest.
	Interval time.Duration
	// MaxRemovals is how many of the entries that a registry has of ours may go in one run: a number, or a percentage, which
	// is rounded up and never means fewer than 3, unless it is 0%.
	MaxRemovals intstr.IntOrString
}

// Pods is what the cluster has, and what this process knows of it. It is safe for concurrent use.
type Pods interface {
	// Compare holds a list against what the registry acknowledged, and has the pods looked at where the two differ.
	Compare(ctx context.Context, l tracker.Listing) (tracker.Comparison, error)
	// Gone returns those of the entries behind which no live pod stands, by the API server's own word. It is called
	// only after the cache of pods has synced.
	Gone(ctx context.Context, entries []registry.Entry) ([]registry.Entry, error)
}

// Options are what a Resync works with.
type Options struct {
	// Cluster is the owner in the marks of what is ours.
	Cluster string
	// Namespaces are those whose pods this process knows; none means all. Entries of others are left alone.
	Namespaces []string
	Pods       Pods
	// Synced reports whether the cache of pods is filled. Nothing is removed before.
	Synced func() bool
	// Approvable says that a person can approve of a removal by the manager's Lease, which not every manager has.
	Approvable bool
	// Warn tells a person that a removal is blocked, besides the log.
	Warn func(ctx context.Context, note string)
	// Listed is closed once each of the first registries was listed, or could not be, or took longer than one call may.
	Listed  chan<- struct{}
	Metrics *metrics.ResyncMetrics
	Clock   clock.WithTicker
	Logger  logr.Logger
}

// Resync compares every registry with the cluster: at start, after each interval, when the configuration changed, and when
// [Resync.Run] is called. What is missing or differs is the reconciler's to mend, so that one pod has one writer. What no
// live pod stands behind is removed here.
//
// A run lists a registry in one call, all of it or nothing. It removes nothing before the cache has synced, after an
// error, and when more than Policy.MaxRemovals would go and nobody has approved of that.
type Resync struct {
	Options

	applied chan struct{}

	mu       sync.Mutex
	policy   Policy
	keepers  map[string]*keeper
	approved map[string]bool
}

// New returns a Resync for no registry yet.
func New(o Options) *Resync {
	return &Resync{
		Options: o, applied: make(chan struct{}, 1),
		keepers: map[string]*keeper{}, approved: map[string]bool{},
	}
}

// Apply says which registries there are from now on, and has all of them compared at once. It may be called at any time.
func (r *Resync) Apply(policy Policy, sources []Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]*keeper, len(sources))
	for _, source := range sources {
		k := r.keepers[source.Name]
		if k == nil || k.source.Client != source.Client {
			k = newKeeper(r, source)
		}
		next[source.Name] = k
	}
	r.policy, r.keepers = policy, next
	select {
	case r.applied <- struct{}{}:
	default: // Start has yet to come to the last one
	}
}

// Run has every registry compared now.
func (r *Resync) Run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.keepers {
		k.wake()
	}
}

// Approve says which removals a person has said yes to, by their digests, and has every registry compared now where there
// is a new one. It replaces what was approved before.
func (r *Resync) Approve(digests []string) {
	r.mu.Lock()
	isNew := slices.ContainsFunc(digests, func(d string) bool { return !r.approved[d] })
	r.approved = make(map[string]bool, len(digests))
	for _, d := range digests {
		r.approved[d] = true
	}
	r.mu.Unlock()
	if isNew {
		r.Run()
	}
}

func (r *Resync) isApproved(digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.approved[digest]
}

// Start compares until the context ends, and returns when nothing is under way. It is a manager.Runnable, and needs the
// lease: only who leads may remove anything.
func (r *Resync) Start(ctx context.Context) error {
	announce := r.announce
	select {
	case <-r.applied: // it is in force from the beginning
	default:
	}
	var before []*keeper
	for ctx.Err() == nil {
		keepers := r.inForce()
		r.forget(before, keepers)
		r.untilApplied(ctx, keepers, announce)
		announce, before = func(context.Context, []*keeper) {}, keepers
	}
	return nil
}

// forget removes the metrics of what is no longer compared. It comes after its last run, which counts too.
func (r *Resync) forget(before, now []*keeper) {
	for _, k := range before {
		if !slices.Contains(now, k) {
			r.Metrics.Forget(k.source.Name)
		}
	}
}

// untilApplied compares until another configuration is in force.
func (r *Resync) untilApplied(ctx context.Context, keepers []*keeper, announce func(context.Context, []*keeper)) {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	for _, k := range keepers {
		loops.Go(func() { k.loop(ctx) })
	}
	loops.Go(func() { announce(ctx, keepers) })
	select {
	case <-ctx.Done():
	case <-r.applied:
	}
	cancel()
	loops.Wait()
}

// announce says that the first lists are there, and waits for none longer than for a call.
func (r *Resync) announce(ctx context.Context, keepers []*keeper) {
	defer close(r.Listed)
	began := r.Clock.Now()
	for _, k := range keepers {
		select {
		case <-k.listed:
		case <-r.Clock.After(k.source.Client.Timeout() - r.Clock.Since(began)):
		case <-ctx.Done():
			return
		}
	}
}

func (r *Resync) has(k *keeper) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keepers[k.source.Name] == k
}

// names are those of the registries in force.
func (r *Resync) names() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make(map[string]bool, len(r.keepers))
	for name := range r.keepers {
		names[name] = true
	}
	return names
}

func (r *Resync) inForce() []*keeper {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.keepers))
}

func (r *Resync) policyInForce() Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy
}
