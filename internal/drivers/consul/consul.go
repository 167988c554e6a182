package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/rollcall-dev/rollcall/registry"
)

// Registry writes Consul's catalog. It implements [registry.Registry], [registry.Lister], [registry.Batcher] and io.Closer.
// Of instances it keeps nothing that a call depends on. It is safe for concurrent use.
type Registry struct {
	client  *api.Client
	guard   *guard
	hangUp  func()
	cluster string
	node    api.Node
	tidier  tidier
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Batcher     = (*Registry)(nil)
	_ io.Closer            = (*Registry)(nil)
)

// New makes a driver for the Consul at cfg.Endpoint: http or https URLs of servers or agents of one datacenter, the next
// of which is used when one does not answer. The token in cfg.Auth.TokenFile and the files of cfg.TLS are read now. For
// cfg.Options see [Options].
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	endpoints, err := cfg.URLs()
	if err != nil {
		return nil, err
	}
	opts, err := decodeOptions(cfg, endpoints)
	if err != nil {
		return nil, err
	}
	if err := cfg.Auth.Accept(registry.AuthToken); err != nil {
		return nil, err
	}
	token, err := cfg.Auth.Token()
	if err != nil {
		return nil, err
	}
	config, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.ServerName = opts.ServerName
	transport := newTransport(config)
	g := &guard{base: transport, endpoints: endpoints, token: token, opts: opts}
	client, err := newClient(g)
	if err != nil {
		return nil, err
	}
	return &Registry{
		client: client, guard: g, hangUp: transport.CloseIdleConnections,
		cluster: cfg.Cluster, node: newNode(opts), tidier: newTidier(),
	}, nil
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.makeOne(ctx, registry.Change{Instance: in, State: registry.InService})
}

// FailOver implements [registry.Registry]. An instance that is not known stays unknown.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.makeOne(ctx, registry.Change{Instance: in, State: registry.OutOfService})
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.makeOne(ctx, registry.Change{Instance: in, State: registry.Absent})
}

// List implements [registry.Lister].
//
// The checks are read first: an entry that comes after that is in service, and one that goes is not listed.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if cluster == "" {
		return nil, registry.Terminal(errors.New("listing a cluster: it has no name"))
	}
	entries, err := r.list(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, err)
	}
	return entries, nil
}

func (r *Registry) list(ctx context.Context, cluster string) ([]registry.Entry, error) {
	out, err := r.outOfService(ctx)
	if err != nil {
		return nil, err
	}
	_, services, err := r.services(ctx, fmt.Sprintf("Meta[%q] == %s", registry.MetaCluster, quote(cluster)))
	if err != nil {
		return nil, err
	}
	entries := make([]registry.Entry, 0, len(services))
	for _, s := range services {
		state := registry.InService
		if out[s.ID] {
			state = registry.OutOfService
		}
		entries = append(entries, entry(s, state))
	}
	return entries, nil
}

// outOfService returns the IDs of the services whose check does not pass. A service without one is given to clients.
func (r *Registry) outOfService(ctx context.Context) (map[string]bool, error) {
	var checks api.HealthChecks
	err := r.ask(ctx, func(q *api.QueryOptions) (meta *api.QueryMeta, err error) {
		q.Filter = fmt.Sprintf("Status != %q", api.HealthPassing)
		checks, meta, err = r.client.Health().Node(r.node.Node, q)
		return meta, err
	})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, c := range checks {
		if c.CheckID == c.ServiceID { // ours; others may add their own
			out[c.ServiceID] = true
		}
	}
	return out, nil
}

// services returns the node, nil if there is none, and those of its services that the filter lets pass.
func (r *Registry) services(ctx context.Context, filter string) (*api.Node, []*api.AgentService, error) {
	var listing *api.CatalogNodeServiceList
	err := r.ask(ctx, func(q *api.QueryOptions) (meta *api.QueryMeta, err error) {
		q.Filter = filter
		listing, meta, err = r.client.Catalog().NodeServiceList(r.node.Node, q)
		return meta, err
	})
	if err != nil || listing == nil {
		return nil, nil, err
	}
	return listing.Node, listing.Services, nil
}

// quote writes a string as Consul's filters read it: with Go's escapes, but with no quotation mark between the two.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\x5c`, `"`, `\x22`, "\n", `\n`).Replace(text) + `"`
}

// ask makes one request that reads, consistently.
func (r *Registry) ask(ctx context.Context, query func(*api.QueryOptions) (*api.QueryMeta, error)) error {
	e := &exchange{scoped: true}
	meta, err := query((&api.QueryOptions{RequireConsistent: true}).WithContext(e.on(ctx)))
	if err != nil {
		return r.requestError(ctx, err, e)
	}
	return r.complete(ctx, meta)
}

// complete returns an error where an answer with status 200 does not hold everything: because the token may not see it, or
// because it is not Consul that answers.
func (r *Registry) complete(ctx context.Context, meta *api.QueryMeta) error {
	if !meta.KnownLeader {
		return errors.New("the answer is not that of a Consul which knows its leader")
	}
	if meta.ResultsFilteredByACLs {
		return notAllowed(fmt.Errorf("the token may not read all of node %s and its services", r.node.Node))
	}
	if r.guard.token != "" || meta.DefaultACLPolicy != "deny" {
		return nil
	}
	// Nobody is told what is kept from those without a token. A transaction tells what is kept from what is not there.
	response, err := r.transact(ctx, api.TxnOps{nodeOp(api.NodeGet, r.node)})
	if err == nil && len(response.Errors) == 0 && len(response.Results) == 0 {
		return notAllowed(fmt.Errorf("is missing: Consul shows node %s only to those with a token", r.node.Node))
	}
	return err
}

// transact makes one transaction. Without an error it was made, or rolled back because of the errors in it.
func (r *Registry) transact(ctx context.Context, ops api.TxnOps) (*api.TxnResponse, error) {
	e := &exchange{}
	q := &api.QueryOptions{RequireConsistent: true}
	made, response, _, err := r.client.Txn().Txn(ops, q.WithContext(e.on(ctx)))
	switch {
	case err != nil:
		return nil, r.requestError(ctx, err, e)
	case !made && len(response.Errors) == 0:
		return nil, errors.New("the transaction was rolled back, and Consul did not say why")
	}
	return response, nil
}

// Close lets go of idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.hangUp()
	return nil
}
