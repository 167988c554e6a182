package nacos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Registry writes instances into Nacos. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Prober], [registry.Heartbeater] and io.Closer. It keeps nothing about instances, and is safe for concurrent use.
type Registry struct {
	client *client
	opts   Options
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
	_ registry.Prober      = (*Registry)(nil)
	_ registry.Heartbeater = (*Registry)(nil)
	_ io.Closer            = (*Registry)(nil)
)

// New makes a driver for the Nacos servers at cfg.Endpoint: one http or https URL or several, separated by commas, each
// with its server's context path, which is /nacos where none is given. All are of one Nacos cluster. The password and the
// certificates are read now.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	urls, err := cfg.URLs()
	if err != nil {
		return nil, err
	}
	config, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	if err := cfg.Auth.Accept(registry.AuthPassword); err != nil {
		return nil, err
	}
	password, err := cfg.Auth.Password()
	if err != nil {
		return nil, err
	}
	opts, err := decodeOptions(cfg)
	if err != nil {
		return nil, err
	}
	client := newClient(newHTTPClient(config), opts, urls, newSession(cfg.Auth.Username, password))
	return &Registry{client: client, opts: opts}, nil
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "registering", in, r.register)
}

// FailOver implements [registry.Registry]. An instance that is not known stays unknown.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "failing over", in, r.failOver)
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "deregistering", in, r.deregister)
}

// Probe implements [registry.Prober]: a client that looks the service up gets the instance only if Nacos holds it healthy.
func (r *Registry) Probe(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "probing", in, r.probe)
}

// HeartbeatInterval implements [registry.Heartbeater]. Persistent instances need none.
func (r *Registry) HeartbeatInterval() time.Duration { return r.opts.interval() }

// Heartbeat implements [registry.Heartbeater].
func (r *Registry) Heartbeat(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "renewing", in, r.beat)
}

// List implements [registry.Lister]. It lists what is in this namespace, group and Nacos cluster.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if cluster == "" {
		return nil, registry.Terminal(errors.New("listing a cluster: it has no name"))
	}
	entries, err := r.list(ctx, cluster)
	if err = classified(ctx, registry.Instance{}, r.opts, err); err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, err)
	}
	return entries, nil
}

// Close lets go of idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.client.http.CloseIdleConnections()
	return nil
}

// change makes a call for an instance that can be written at all.
func (r *Registry) change(
	ctx context.Context, doing string, in registry.Instance, call func(context.Context, registry.Instance) error,
) error {
	err := check(in)
	if err != nil {
		err = registry.Terminal(err)
	} else {
		err = classified(ctx, in, r.opts, call(ctx, in))
	}
	if err != nil {
		return fmt.Errorf("%s %s at %s: %w", doing, in.Service, in.Endpoint(), err)
	}
	return nil
}
