package etcd

import (
	"context"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
)

// Get implements [registry.Getter] with a linearizable read: a member answers only after it has made sure, with a majority,
// that it has applied all that was acknowledged before.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	state, err := r.state(ctx, in)
	if err != nil {
		return "", fmt.Errorf("asking for %s at %s: %w", in.Service, in.Endpoint(), err)
	}
	return state, nil
}

func (r *Registry) state(ctx context.Context, in registry.Instance) (registry.State, error) {
	if err := whole(in); err != nil {
		return "", registry.Terminal(err)
	}
	kv, err := r.get(ctx, r.target.key(in))
	if err != nil {
		return "", registry.ContextError(ctx, classify(err))
	}
	if kv == nil {
		return registry.Absent, nil
	}
	held, ours := r.target.decode(kv)
	if !ours || !in.Owns(held.UID, held.Registry) || held.Cluster != in.Cluster {
		return registry.Absent, nil
	}
	return registry.InService, nil
}
