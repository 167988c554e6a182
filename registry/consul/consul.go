package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
)

// maxReads is how many requests of one list are made at once.
const maxReads = 8

// Registry writes Consul's catalog. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Batcher] and io.Closer. Of instances it keeps nothing that a call depends on. It is safe for concurrent use.
type Registry struct {
	client  *api.Client
	guard   *guard
	hangUp  func()
	cluster string
	nodes   []api.Node
	tidiers []*tidier
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
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
		cluster: cfg.Cluster, nodes: newNodes(opts), tidiers: newTidiers(),
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
	filter := fmt.Sprintf("Meta[%q] == %s", registry.MetaCluster, quote(cluster))
	found := make([][]*api.AgentService, len(r.nodes))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for number, node := range r.nodes {
		group.Go(func() (err error) {
			_, found[number], err = r.services(ctx, node, filter)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // it is ours
	}
	var entries []registry.Entry
	for _, s := range slices.Concat(found...) {
		state := registry.InService
		if out[s.ID] {
			state = registry.OutOfService
		}
		entries = append(entries, entry(s, state))
	}
	return entries, nil
}

// outOfService returns the IDs of the services whose check is critical. A service without one is given to clients.
func (r *Registry) outOfService(ctx context.Context) (map[string]bool, error) {
	var checks api.HealthChecks
	err := r.ask(ctx, func(q *api.QueryOptions) (meta *api.QueryMeta, err error) {
		q.NodeMeta = map[string]string{metaGroup: r.guard.opts.group()}
		checks, meta, err = r.client.Health().State(api.HealthCritical, q)
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

// services returns a node, nil if there is none, and those of its services that the filter lets pass.
func (r *Registry) services(ctx context.Context, of api.Node, filter string) (*api.Node, []*api.AgentService, error) {
	var listing *api.CatalogNodeServiceList
	var policy string
	err := r.ask(ctx, func(q *api.QueryOptions) (meta *api.QueryMeta, err error) {
		q.Filter = filter
		if listing, meta, err = r.client.Catalog().NodeServiceList(of.Node, q); err == nil {
			policy = meta.DefaultACLPolicy
		}
		return meta, err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case listing == nil:
		return nil, nil, errors.New("the answer is empty")
	case listing.Node == nil && r.guard.token == "" && policy == "deny":
		return nil, nil, r.hidden(ctx, of)
	}
	return listing.Node, listing.Services, nil
}

// hidden returns an error where a node is there, and kept from those without a token: nobody tells them. A transaction
// tells what is kept from what is not there.
func (r *Registry) hidden(ctx context.Context, node api.Node) error {
	response, err := r.transact(ctx, api.TxnOps{nodeOp(api.NodeGet, node)})
	if err == nil && len(response.Errors) == 0 {
		return notAllowed(fmt.Errorf("is missing: Consul shows node %s only to those with a token", node.Node))
	}
	return err
}

// quote writes a string as Consul's filters read it: with Go's escapes, but with no quotation mark between the two.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\x5c`, `"`, `\x22`, "\n", `\n`).Replace(text) + `"`
}

// ask makes one request that reads, consistently. The answer is Consul's, and whole: an error says that the token may not
// see all of it.
func (r *Registry) ask(ctx context.Context, query func(*api.QueryOptions) (*api.QueryMeta, error)) error {
	e := &exchange{scoped: true}
	meta, err := query((&api.QueryOptions{RequireConsistent: true}).WithContext(e.on(ctx)))
	if err != nil {
		return r.requestError(ctx, err, e)
	}
	switch {
	case !meta.KnownLeader:
		return errors.New("the answer is not that of a Consul which knows its leader")
	case meta.ResultsFilteredByACLs:
		return notAllowed(errors.New("the token may not read all of our nodes and their services"))
	}
	return nil
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
