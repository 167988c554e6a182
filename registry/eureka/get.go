package eureka

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Get implements [registry.Getter]. It reads the registry itself, past the server's caches. If the registry has no such entry, it
// asks for a renewal, which makes none, but brings one to light whose lease has ended and which clients are still given, and
// then the other peers. An entry that is out of rotation is copied to those, as [Registry.FailOver] does.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = r.change(ctx, "asking for", in, func(c call, ctx context.Context) error {
		err := c.anywhere(ctx, func(c call, ctx context.Context) (_ bool, err error) {
			state, err = c.state(ctx)
			return state != "", err
		})
		if err == nil && state == "" {
			state, err = registry.Absent, c.serves(ctx)
		}
		return err
	})
	return state, err
}

// state is "" if the peer has nothing.
func (c call) state(ctx context.Context) (registry.State, error) {
	got, err := c.find(ctx)
	if err != nil {
		return "", err
	}
	foreign, err := c.isForeign(ctx)
	switch {
	case err != nil:
		return "", err
	case foreign:
		return registry.Foreign, nil
	case got == nil:
		return "", nil
	case !c.in.OwnsMeta(got.Metadata), got.Metadata[registry.MetaCluster] != c.in.Cluster:
		return registry.Absent, nil
	case got.Status == statusUp: // clients are given no other
		return registry.InService, nil
	}
	return registry.OutOfService, c.copyOut(ctx, got)
}

// isForeign reports whether another ID of the application has the address, by the server's cache.
func (c call) isForeign(ctx context.Context) (bool, error) {
	infos, _, err := c.application(ctx)
	if err != nil {
		return false, err
	}
	for _, info := range infos {
		for _, e := range info.foreign(c.in.Cluster) {
			e.Service = c.in.Service // the application is, whatever its VIP
			if driverkit.GivesInstance(e, c.in) {
				return true, nil
			}
		}
	}
	return false, nil
}
