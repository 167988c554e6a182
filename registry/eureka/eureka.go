package eureka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Registry is a Eureka registry. It implements [registry.Registry], [registry.StaleLister], [registry.Getter],
// [registry.Heartbeater] and io.Closer, and keeps nothing about instances. It is safe for concurrent use.
type Registry struct {
	peers *peers
	opts  Options
	held  locks
}

var (
	_ registry.Constructor = New
	_ registry.StaleLister = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
	_ registry.Heartbeater = (*Registry)(nil)
	_ io.Closer            = (*Registry)(nil)
)

// New makes a driver for the peers at cfg.Endpoint, http or https URLs with Eureka's path, separated by commas as in
// defaultZone. A call goes to the peer that took the last one, and to the next where that can't be reached or answers 5xx.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	peers, err := newPeers(cfg)
	if err != nil {
		return nil, err
	}
	opts, err := decodeOptions(cfg)
	if err != nil {
		return nil, err
	}
	return &Registry{peers: peers, opts: opts}, nil
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "registering", in, call.register)
}

// FailOver implements [registry.Registry]. An instance that is not known is known and out of service afterwards.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "failing over", in, call.failOver)
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "deregistering", in, call.deregister)
}

// HeartbeatInterval implements [registry.Heartbeater].
func (r *Registry) HeartbeatInterval() time.Duration { return seconds(r.opts.RenewalIntervalInSecs) }

// Heartbeat implements [registry.Heartbeater].
func (r *Registry) Heartbeat(ctx context.Context, in registry.Instance) error {
	// Not held: a beat changes nothing but the lease, and must not wait behind a call for another identity.
	return r.on(ctx, "renewing", in, call.heartbeat)
}

// List implements [registry.Lister].
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if cluster == "" {
		return nil, registry.Terminal(errors.New("listing a cluster: it has no name"))
	}
	var entries []registry.Entry
	err := r.peers.try(ctx, func(p *peer) (err error) {
		entries, err = p.list(ctx, cluster)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, err)
	}
	return entries, nil
}

// Staleness implements [registry.StaleLister]: the server answers List from its caches, and what it acknowledges may be
// missing there for as long as the option says.
func (r *Registry) Staleness() time.Duration { return seconds(r.opts.ListStalenessInSecs) }

// Close lets go of idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.peers.close()
	return nil
}

// change is on with the identity held.
func (r *Registry) change(
	ctx context.Context, doing string, in registry.Instance, do func(call, context.Context) error,
) error {
	release, err := r.held.hold(ctx, instanceID(in))
	if err != nil {
		return fmt.Errorf("%s %s at %s: waiting for another call: %w", doing, in.Service, in.Endpoint(), err)
	}
	defer release()
	return r.on(ctx, doing, in, do)
}

// on makes a call on one of the peers.
func (r *Registry) on(
	ctx context.Context, doing string, in registry.Instance, do func(call, context.Context) error,
) error {
	err := registry.Terminal(check(in))
	if err == nil {
		err = r.peers.try(ctx, func(p *peer) error { return do(newCall(p, r.opts, in), ctx) })
	}
	if err != nil {
		return fmt.Errorf("%s %s at %s: %w", doing, in.Service, in.Endpoint(), err)
	}
	return nil
}
