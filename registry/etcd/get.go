package etcd

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Get implements [registry.Getter] with a linearizable read of the service's entries, since another's may have the address:
// a member answers only after it has made sure, with a majority, that it has applied all that was acknowledged before.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	state, err := r.state(ctx, in)
	return state, driverkit.CallError(ctx, "asking for", in, err)
}

func (r *Registry) state(ctx context.Context, in registry.Instance) (registry.State, error) {
	if err := driverkit.CheckInstance(in); err != nil {
		return "", err
	}
	state := registry.Absent
	err := r.each(ctx, r.target.folder(in), func(kv *mvccpb.KeyValue) {
		held, ours := r.target.decode(kv)
		switch {
		case slices.ContainsFunc(r.target.foreign(kv, in.Cluster), func(e registry.Entry) bool { return driverkit.GivesInstance(e, in) }):
			state = registry.Foreign
		case state == registry.Absent && ours && string(kv.GetKey()) == r.target.key(in) &&
			in.Owns(held.UID, held.Registry) && held.Cluster == in.Cluster:
			state = registry.InService
		}
	})
	return state, err
}
