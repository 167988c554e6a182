package nacos

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
)

// Get implements [registry.Getter]. Servers answer every read from a copy that they renew up to 500 ms after a change;
// so it is asked only after longer than that, and the answer has all that was there when the call began.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = r.changeOwn(ctx, "asking for", in, func(ctx context.Context, in registry.Instance) error {
		if err := pause(ctx, settle); err != nil {
			return err
		}
		_, h, err := r.findOwn(ctx, in)
		if err == nil {
			state = h.state(in)
		}
		return err
	})
	return state, err
}

// state is an instance's state by the entry.
func (h *host) state(in registry.Instance) registry.State {
	switch {
	case h.isForeign():
		return registry.Foreign
	case !h.isOwn(in) || h.Metadata[registry.MetaCluster] != in.Cluster:
		return registry.Absent
	case h.isOut():
		return registry.OutOfService
	}
	return registry.InService
}

// isOut reports whether an entry of Rollcall's is out of rotation. v1 and v2 don't tell enabled of a single instance: there it is that of
// the stamp, which is written with it. Whoever changes enabled in the console leaves the stamp as it is.
func (h *host) isOut() bool {
	if h.Enabled != nil {
		return !*h.Enabled
	}
	return h.stamp().state() != registry.InService
}
