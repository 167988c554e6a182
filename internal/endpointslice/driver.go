package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Name is the driver's in the configuration.
const Name = "endpointslice"

// proxyLag is kube-proxy's: it writes rules at most once a second.
// https://kubernetes.io/docs/reference/command-line-tools-reference/kube-proxy (iptables-min-sync-period)
const proxyLag = 2 * time.Second

// driver implements [registry.Registry] and [registry.Describer].
type driver struct{ watch *Watch }

var (
	_ registry.Describer = driver{}
)

// New is a [registry.Constructor]. There is nothing to reach and nothing to choose.
func (w *Watch) New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	field := driverkit.AccessField(cfg)
	if cfg.Endpoint != "" {
		field = "endpoint"
	}
	if field != "" {
		return nil, registry.FieldError(field, errors.New("driver endpointslice asks the API server as the manager does and takes none; "+
			"remove it"))
	}
	if err := driverkit.DecodeOptions(cfg, &struct{}{}); err != nil {
		return nil, err
	}
	w.want()
	return driver{w}, nil
}

// Traits implements [registry.Describer].
func (driver) Traits() registry.Traits {
	return registry.Traits{FollowsCondition: true, ReaderLag: proxyLag}
}

// Register implements [registry.Registry].
func (d driver) Register(ctx context.Context, in registry.Instance) error {
	return d.check(ctx, in, view.in)
}

// FailOver implements [registry.Registry].
func (d driver) FailOver(ctx context.Context, in registry.Instance) error {
	return d.check(ctx, in, view.out)
}

// Deregister implements [registry.Registry]. A pod that leaves this registry and stays in rotation needs nothing.
func (d driver) Deregister(ctx context.Context, in registry.Instance) error {
	return d.check(ctx, in, func(v view) error {
		if v.pod != nil && !lifecycle.Ends(v.pod) && !lifecycle.RolloutWaits(v.pod) {
			return nil
		}
		return v.out()
	})
}

func (d driver) check(ctx context.Context, in registry.Instance, holds func(view) error) error {
	if err := ctx.Err(); err != nil {
		return err // the cache would answer all the same
	}
	v, err := d.watch.look(ctx, in)
	if err == nil {
		err = holds(v)
	}
	if err == nil {
		d.watch.shown.Remove(in.UID)
	}
	if err != nil {
		return fmt.Errorf("pod %s/%s: %w", in.Namespace, in.Pod, err)
	}
	return nil
}
