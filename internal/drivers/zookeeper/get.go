package zookeeper

import (
	"context"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
)

// Get implements [registry.Getter]. It has the server catch up before it reads, as a list does, and waits for a request for
// the entry that was given up and is still under way.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	said := make(chan registry.State, 1) // work that was given up has nobody to tell
	err := registry.Terminal(r.tree.check(in))
	if err == nil {
		err = r.exclusively(ctx, []string{r.tree.entry(in)}, func(ctx context.Context) error {
			state, err := r.state(ctx, in)
			said <- state
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("asking for %s at %s: %w", in.Service, in.Endpoint(), err)
	}
	return <-said, nil
}

func (r *Registry) state(ctx context.Context, in registry.Instance) (registry.State, error) {
	n, err := r.read(ctx, in, true)
	switch {
	case err != nil:
		return "", err
	case n == nil:
		return registry.Absent, r.checkChroot(ctx)
	case !n.isOwn(in) || n.Cluster != in.Cluster:
		return registry.Absent, nil
	}
	return n.State, nil
}
