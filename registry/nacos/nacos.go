package nacos

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Registry writes instances into Nacos. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Prober], [registry.Heartbeater], [registry.AppEntrySteerer] and io.Closer. It keeps nothing about instances, and
// is safe for concurrent use.
type Registry struct {
	client *client
	opts   Options
}

var (
	_ registry.Constructor     = New
	_ registry.Lister          = (*Registry)(nil)
	_ registry.Getter          = (*Registry)(nil)
	_ registry.Prober          = (*Registry)(nil)
	_ registry.Heartbeater     = (*Registry)(nil)
	_ registry.AppEntrySteerer = (*Registry)(nil)
	_ io.Closer                = (*Registry)(nil)
	_ registry.Describer       = (*Registry)(nil)
	_ registry.MemberLister    = (*Registry)(nil)
)

// New makes a driver for the Nacos servers at cfg.Endpoint: one http or https URL or several, separated by commas, each
// with its server's context path, which is /nacos if none is given. All are of one Nacos cluster. The password and the
// certificates are read now. A cfg.Timeout that is shorter than what calls pause for is refused.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	opts, optionsErr := decodeOptions(cfg)
	credentials, key, credentialsErr := readCredentials(cfg.Auth, opts)
	http, clientErr := driverkit.NewHTTPClient(cfg, driverkit.HTTPOptions{
		Name: "Nacos", NameServers: true, Path: "/nacos", Credentials: credentials,
	})
	if err := errors.Join(checkTimeout(cfg.Timeout), optionsErr, credentialsErr, clientErr); err != nil {
		return nil, err
	}
	client := newClient(http, opts, key, driverkit.Logger(cfg))
	if key == nil {
		client.session = newSession(credentials, client.log)
	}
	made := &Registry{client: client, opts: opts}
	template, err := opts.places().Template()
	if template == "" || err != nil {
		return made, err
	}
	return driverkit.NewPlaced(template, made, made.at), nil
}

// at returns the driver for one place. Its client is another only in where its calls are about.
func (r *Registry) at(place string) (driverkit.InPlace, error) {
	opts := r.opts
	if err := cmp.Or(opts.places().Fill(place), opts.checkNames()); err != nil {
		return nil, err
	}
	return &Registry{client: r.client.in(opts), opts: opts}, nil
}

// UnlistedMembers implements [registry.MemberLister].
func (r *Registry) UnlistedMembers() []string { return r.client.members.Unlisted() }

// Traits implements [registry.Describer]. Persistent instances need no heartbeats.
func (r *Registry) Traits() registry.Traits {
	return registry.Traits{Weighs: true, HeartbeatInterval: r.opts.interval()}
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	if err := driverkit.CheckPrintable(in); err != nil {
		return driverkit.CallError(ctx, "registering", in, err)
	}
	return r.changeOwn(ctx, "registering", in, r.register)
}

// FailOver implements [registry.Registry]. An instance that is not known stays unknown.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.changeOwn(ctx, "taking out", in, r.failOver)
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.changeOwn(ctx, "deregistering", in, r.deregister)
}

// Probe implements [registry.Prober]: a client that looks the service up gets the instance only if Nacos holds it healthy.
func (r *Registry) Probe(ctx context.Context, in registry.Instance) error {
	return r.changeOwn(ctx, "probing", in, r.probe)
}

// Heartbeat implements [registry.Heartbeater].
func (r *Registry) Heartbeat(ctx context.Context, in registry.Instance) error {
	return r.changeOwn(ctx, "renewing", in, r.beat)
}

// List implements [registry.Lister]. It lists what is in this namespace and group: Rollcall's own in this Nacos cluster, others' in all.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return driverkit.List(ctx, cluster, func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		entries, err := r.list(ctx, cluster)
		return entries, classified(registry.Instance{}, r.opts, err)
	})
}

// Close closes idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.client.http.Close()
	return nil
}

// changeOwn makes a call for a pod's own entry. Applications write their addresses in forms of their own.
func (r *Registry) changeOwn(
	ctx context.Context, doing string, in registry.Instance, call func(context.Context, registry.Instance) error,
) error {
	return r.change(ctx, doing, in, func(ctx context.Context, in registry.Instance) error { return call(ctx, r.opts.written(in)) })
}

// change makes a call for an instance that can be written at all.
func (r *Registry) change(
	ctx context.Context, doing string, in registry.Instance, call func(context.Context, registry.Instance) error,
) error {
	err := check(in)
	if err == nil {
		err = classified(in, r.opts, call(ctx, in))
	}
	return driverkit.CallError(ctx, doing, in, err)
}
