package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// maxReads is how many requests of one list are made at the same time.
const maxReads = 8

// Registry writes Consul's catalog. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Batcher], [registry.AppEntrySteerer] and io.Closer. Of instances it keeps nothing that a call depends on. It is
// safe for concurrent use.
type Registry struct {
	client      *driverkit.HTTPClient
	agents      *driverkit.HTTPClient
	session     *session
	credentials driverkit.Credentials
	opts        Options
	cluster     string
	nodes       []node
	tidiers     []*tidier
	names       *names
	others      *driverkit.Others
	lookups     *lookups[inService]
	namings     *lookups[[]string]
	// enterprise is set once Consul has answered about a namespace or partition.
	enterprise *atomic.Bool
}

var (
	_ registry.Constructor     = New
	_ registry.Lister          = (*Registry)(nil)
	_ registry.Getter          = (*Registry)(nil)
	_ registry.Batcher         = (*Registry)(nil)
	_ registry.AppEntrySteerer = (*Registry)(nil)
	_ registry.Prober          = prober{}
	_ io.Closer                = (*Registry)(nil)
	_ registry.Describer       = (*Registry)(nil)
)

// New makes a driver for the Consul at cfg.Endpoint: http or https URLs of servers or agents of one datacenter, the next
// of which is used when one does not answer. The token in cfg.Auth.TokenFile and the files of cfg.TLS are read now. For
// cfg.Options see [Options].
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	credentials, credentialsErr := driverkit.ReadCredentials(cfg.Auth, driverkit.Token)
	opts, optionsErr := decodeOptions(cfg)
	client, clientErr := driverkit.NewHTTPClient(cfg, driverkit.HTTPOptions{
		Name: "Consul", ServerName: opts.ServerName, Credentials: credentials,
	})
	if err := errors.Join(credentialsErr, optionsErr, clientErr); err != nil {
		return nil, err
	}
	agents, err := newAgents(cfg, opts, credentials)
	if err != nil {
		return nil, err
	}
	made := &Registry{
		client: client, agents: agents, session: newSession(opts, credentials), credentials: credentials, opts: opts, cluster: cfg.Cluster,
		nodes: newNodes(opts), tidiers: newTidiers(), names: &names{}, enterprise: &atomic.Bool{},
		others: &driverkit.Others{}, lookups: &lookups[inService]{}, namings: &lookups[[]string]{},
	}
	template, err := opts.places().Template()
	if template != "" && err == nil {
		return driverkit.NewPlaced(template, made.proper(), made.at), nil
	}
	return made.proper(), err
}

// proper is a [registry.Prober] only if the options set that.
func (r *Registry) proper() driverkit.InPlace {
	if r.opts.Probe {
		return prober{r}
	}
	return r
}

// at returns the driver for one place.
func (r *Registry) at(place string) (driverkit.InPlace, error) {
	in := *r
	if err := cmp.Or(in.opts.places().Fill(place), in.opts.checkNames()); err != nil {
		return nil, err
	}
	in.nodes, in.tidiers, in.names = newNodes(in.opts), newTidiers(), &names{}
	in.others, in.lookups, in.namings = &driverkit.Others{}, &lookups[inService]{}, &lookups[[]string]{}
	return in.proper(), nil
}

// Traits implements [registry.Describer].
func (r *Registry) Traits() registry.Traits { return registry.Traits{Weighs: true} }

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.InService}})[0]
}

// FailOver implements [registry.Registry]. An instance that is not known stays unknown, as it does with the option outOfRotation: delete.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.OutOfService}})[0]
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.Absent}})[0]
}

// List implements [registry.Lister].
//
// The checks are read first: an entry that comes after that is in rotation, and one that goes is not listed.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return driverkit.List(ctx, cluster, r.list)
}

func (r *Registry) list(ctx context.Context, cluster string) ([]registry.Entry, error) {
	out, err := r.outOfService(ctx)
	if err != nil {
		return nil, err
	}
	filter := fmt.Sprintf("Meta[%q] == %s", registry.MetaCluster, quote(cluster))
	found := make([][]*service, len(r.nodes))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for number, node := range r.nodes {
		group.Go(func() (err error) {
			_, found[number], err = r.services(groupCtx, node, filter)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // it is the driver's own
	}
	var entries, copies []registry.Entry
	for number, services := range found {
		for _, s := range services {
			switch e := entry(s, registry.InService); {
			case misplaced(number, s) && !out[s.ID]:
				id := fmt.Sprintf("%q on node %s", s.ID, r.nodes[number].Node)
				copies = append(copies, driverkit.Tagged(driverkit.Foreign(s.Service, s.Address, s.Port), s.Meta, id))
			case misplaced(number, s):
			case out[s.ID]:
				e.State = registry.OutOfService
				entries = append(entries, e)
			default:
				entries = append(entries, e)
			}
		}
	}
	r.names.note(namesOf(entries)...)
	others, err := r.foreign(ctx, cluster)
	return slices.Concat(entries, copies, others), err
}

// outOfService returns the IDs of the services whose check is critical. A service without one is given to clients.
func (r *Registry) outOfService(ctx context.Context) (map[string]bool, error) {
	var checks []check
	query := url.Values{"node-meta": {metaGroup + ":" + r.opts.group()}}
	if _, err := r.read(ctx, "/v1/health/state/"+statusCritical, query, true, &checks); err != nil {
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
func (r *Registry) services(ctx context.Context, of node, filter string) (*node, []*service, error) {
	var listing *struct {
		Node     *node
		Services []*service
	}
	query := url.Values{}
	if filter != "" {
		query.Set("filter", filter)
	}
	header, err := r.read(ctx, "/v1/catalog/node-services/"+of.Node, query, true, &listing)
	switch {
	case err != nil:
		return nil, nil, err
	case listing == nil:
		return nil, nil, errors.New("the answer is empty")
	case listing.Node == nil && r.mayHide(header):
		return nil, nil, r.hidden(ctx, of)
	}
	return listing.Node, listing.Services, nil
}

// mayHide reports whether what an answer lacks may be kept from those without a token.
func (r *Registry) mayHide(header http.Header) bool {
	return r.credentials.Token == "" && header.Get("X-Consul-Default-Acl-Policy") == "deny"
}

// hidden returns an error if a node is there, and hidden from those without a token: Consul does not report that. A transaction
// distinguishes what is hidden from what is not there.
func (r *Registry) hidden(ctx context.Context, of node) error {
	made, err := r.transact(ctx, []operation{nodeOp(get, of)})
	if err == nil && len(made.Errors) == 0 {
		return notAllowed(fmt.Errorf("is missing: Consul shows node %s only to requests with a token", of.Node))
	}
	return err
}

// Close logs out, if Rollcall has logged in, and closes idle connections.
func (r *Registry) Close() error {
	r.logOut()
	r.client.Close()
	r.agents.Close()
	return nil
}
