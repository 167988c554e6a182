package eureka

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// maxAnswer bounds the body of an answer, in bytes: some 100,000 instances.
const maxAnswer = 128 << 20

// Registry is a Eureka registry. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Heartbeater], [registry.AppEntrySteerer] and io.Closer, and keeps nothing about instances. It is safe for
// concurrent use.
type Registry struct {
	client *driverkit.HTTPClient
	header http.Header
	field  string // of the configuration: the one to check if the server does not know us
	opts   Options
	held   driverkit.Locks
	// members are the peers, of which the client may have fewer addresses.
	members *driverkit.Members
	// applications are questions about whole applications.
	applications driverkit.Shared[listed]

	// replicated is the header of a change that Rollcall replicates. A peer passes such a one on to no other, where it could come
	// after a later change.
	replicated http.Header

	spellings spellings
}

var (
	_ registry.Constructor     = New
	_ registry.Describer       = (*Registry)(nil)
	_ registry.MemberLister    = (*Registry)(nil)
	_ registry.Getter          = (*Registry)(nil)
	_ registry.Heartbeater     = (*Registry)(nil)
	_ registry.AppEntrySteerer = (*Registry)(nil)
	_ io.Closer                = (*Registry)(nil)
)

// New makes a driver for the peers at cfg.Endpoint, http or https URLs with Eureka's path, separated by commas as in
// defaultZone. A call goes to the peer that took the last one, and to the next if that can't be reached or answers 5xx.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	credentials, credentialsErr := driverkit.ReadCredentials(cfg.Auth, driverkit.Password)
	header, headerErr := credentials.Authorization()
	client, clientErr := driverkit.NewHTTPClient(cfg, driverkit.HTTPOptions{
		Name: "Eureka", Credentials: credentials, NameServers: true,
	})
	opts, optionsErr := decodeOptions(cfg)
	if err := errors.Join(credentialsErr, headerErr, clientErr, optionsErr); err != nil {
		return nil, err
	}
	r := &Registry{
		client: client, header: header, field: "auth.username", opts: opts, spellings: spellings{known: map[string][]string{}},
	}
	if credentials.Username != "" {
		r.field = "auth.passwordFile"
	}
	r.members = driverkit.NewMembers(client, r.peers)
	r.replicated = r.header.Clone()
	r.replicated.Set("X-Netflix-Discovery-Replication", "true")
	return r, nil
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	if err := driverkit.CheckPrintable(in); err != nil {
		return driverkit.CallError(ctx, "registering", in, err)
	}
	return r.change(ctx, "registering", in, call.register)
}

// FailOver implements [registry.Registry]. An instance that is not known is known and out of rotation afterwards.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "taking out", in, call.failOver)
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "deregistering", in, call.deregister)
}

// Heartbeat implements [registry.Heartbeater].
func (r *Registry) Heartbeat(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "renewing", in, call.heartbeat)
}

// List implements [registry.Lister]. An entry that only another peer has is listed too: nothing renews it, and that peer's clients are
// given it until its lease ends. Another peer that fails counts as one that has nothing.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return driverkit.List(ctx, cluster, func(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
		var from driverkit.Server
		err = r.client.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) (err error) {
			from = s
			entries, err = peer{Registry: r, server: s}.list(ctx, cluster)
			return err
		})
		if err != nil {
			return nil, err
		}
		r.members.Refresh(ctx)
		_ = r.client.Try(ctx, driverkit.Policy{After: from}, func(ctx context.Context, s driverkit.Server) error {
			others, err := peer{Registry: r, server: s}.list(ctx, cluster)
			if err == nil {
				entries = append(entries, lacking(entries, others)...)
				err = errNothing // what the next one has counts too
			}
			return err
		})
		return entries, nil
	})
}

// lacking are those of others whose place is in none of the entries.
func lacking(entries, others []registry.Entry) []registry.Entry {
	type place struct {
		service, address string
		port             int
	}
	at := func(e registry.Entry) place { return place{e.Service, e.Address, e.Port} }
	has := map[place]bool{}
	for _, e := range entries {
		has[at(e)] = true
	}
	return slices.DeleteFunc(others, func(e registry.Entry) bool { return has[at(e)] })
}

// Traits implements [registry.Describer]. The server answers List from its caches, and what it acknowledges may be missing there for as
// long as the option sets. It renews the answer that its clients read every 30 seconds
// (eureka.server.response-cache-update-interval-ms), and they fetch it every 30 seconds
// (eureka.client.registry-fetch-interval-seconds).
func (r *Registry) Traits() registry.Traits {
	return registry.Traits{
		ReaderLag: time.Minute, Staleness: seconds(r.opts.ListStalenessInSecs), HeartbeatInterval: seconds(r.opts.RenewalIntervalInSecs),
	}
}

// Close closes idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.client.Close()
	return nil
}

// change makes a call with the identity held, whole, on one of the peers: what that has acknowledged is a moment later at
// the others. A heartbeat is one too: the server puts a status back in it that another call changes meanwhile.
func (r *Registry) change(
	ctx context.Context, doing string, in registry.Instance, do func(call, context.Context) error,
) error {
	if err := check(in); err != nil {
		return driverkit.CallError(ctx, doing, in, err)
	}
	release, err := r.held.Acquire(ctx, instanceID(in))
	if err != nil {
		return driverkit.CallError(ctx, doing, in, err)
	}
	defer release()
	err = r.client.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
		if r.members.Several(ctx) { // the next request could be another peer's, which has not heard of the one before
			s = s.Alone(ctx)
		}
		return do(newCall(peer{Registry: r, server: s}, in), ctx)
	})
	return driverkit.CallError(ctx, doing, in, err)
}
