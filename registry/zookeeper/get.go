package zookeeper

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Get implements [registry.Getter]. It has the server catch up before it reads, as a list does, and waits for a request for
// the entry that was given up and is still under way.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	said := make(chan registry.State, 1) // work that was given up has no reader
	err := r.tree.check(in)
	if err == nil {
		err = r.exclusively(ctx, []string{r.tree.entry(in)}, func(ctx context.Context) error {
			state, err := caughtUp(ctx, r.session, func(ctx context.Context) (registry.State, error) { return r.state(ctx, in) })
			said <- state
			return err
		})
	}
	if err != nil {
		return "", driverkit.CallError(ctx, "asking for", in, err)
	}
	return <-said, nil
}

func (r *Registry) state(ctx context.Context, in registry.Instance) (registry.State, error) {
	n, err := r.read(ctx, in)
	if err != nil {
		return "", err
	}
	foreign, err := r.others.Give(ctx, in, func(ctx context.Context) ([]registry.Entry, error) {
		return r.othersOf(ctx, in.Service, in.Cluster)
	})
	switch {
	case err != nil:
		return "", err
	case foreign, n.gives(in):
		return registry.Foreign, nil
	case n == nil:
		return registry.Absent, r.checkChroot(ctx)
	case !n.isOwn(in) || n.Cluster != in.Cluster:
		return registry.Absent, nil
	}
	return n.State, nil
}
