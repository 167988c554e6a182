package consul

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// names are the services in which this process has seen or written entries. They outlast the entries: others' entries of a service show
// after its last pod has left. The zero value is ready.
type names struct {
	mu    sync.Mutex
	known map[string]string // by how Consul compares them
}

// maxNames bounds them. Beyond it, those of the entries that are there are learned again.
const maxNames = 100_000

func (n *names) note(services ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || len(n.known) > maxNames {
		n.known = map[string]string{}
	}
	for _, service := range services {
		n.known[strings.ToLower(service)] = service
	}
}

// among returns those that the catalog has too.
func (n *names) among(catalog map[string][]string) (both []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for service := range catalog {
		if own, is := n.known[strings.ToLower(service)]; is {
			both = append(both, own)
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// foreign returns what clients are given of the services that this process knows, by what it does not change. One request shows which
// services have any, which are few, if any: those are read one by one.
func (r *Registry) foreign(ctx context.Context, cluster string) ([]registry.Entry, error) {
	var catalog map[string][]string
	filter := url.Values{"filter": {r.elsewhere(cluster, "NodeMeta", "ServiceMeta")}}
	if _, err := r.read(ctx, servicesPath, filter, false, &catalog); err != nil {
		return nil, err
	}
	services := slices.DeleteFunc(r.names.among(catalog), func(name string) bool { return !hasPath(name) })
	found := make([][]registry.Entry, len(services))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for i, service := range services {
		group.Go(func() (err error) {
			found[i], err = r.foreignOf(ctx, service, cluster)
			return err
		})
	}
	err := group.Wait()
	return slices.Concat(found...), err //nolint:wrapcheck // it is the driver's own
}

func (r *Registry) foreignOf(ctx context.Context, name, cluster string) (entries []registry.Entry, err error) {
	services, _, err := r.health(ctx, name, url.Values{"filter": {r.elsewhere(cluster, "Node.Meta", "Service.Meta")}})
	for _, s := range services {
		if s.failing() == nil {
			entries = append(entries, s.foreign(name))
		}
	}
	return entries, err
}

// health reads a service as clients do. What the token may not see is not in the answer.
func (r *Registry) health(ctx context.Context, name string, query url.Values) (services []appService, header http.Header, err error) {
	header, err = r.read(ctx, healthOfServicePath+url.PathEscape(name), query, false, &services)
	return services, header, err
}

// foreign is the service as a list has it. An agent's has its node's address if it has none.
func (s appService) foreign(name string) registry.Entry {
	address := s.Service.Address
	if address == "" {
		address = s.Node.Address
	}
	return driverkit.Tagged(driverkit.Foreign(name, address, s.Service.Port), s.Service.Meta, s.String())
}

// elsewhere is a filter that lets pass what is not under this driver's nodes or has no ownership tag, but not another cluster's.
func (r *Registry) elsewhere(cluster, ofNode, ofService string) string {
	return fmt.Sprintf("(%[1]q not in %[2]s or %[2]s[%[1]q] != %[3]s or %[4]q not in %[5]s) and (%[4]q not in %[5]s or %[5]s[%[6]q] == %[7]s)",
		metaGroup, ofNode, quote(r.opts.group()), registry.MetaUID, ofService, registry.MetaCluster, quote(cluster))
}

// hasPath reports whether Consul answers to a name in a path, by which clients look it up: it cleans paths, and refuses those with
// characters that can't be printed (hashicorp/go-cleanhttp, PrintablePathCheckHandler).
func hasPath(service string) bool {
	return path.Clean("/"+service) == "/"+service && driverkit.IsPrintable(service)
}

// isForeign reports whether clients are given the instance by a service that this driver does not change: an agent's, say. A copy of its
// own under one of its nodes only shows in a list: that would be a question for each instance.
func (r *Registry) isForeign(ctx context.Context, in registry.Instance) (bool, error) {
	if !hasPath(in.Service) {
		return false, nil // the endpoint takes no such name, and no agent registers one
	}
	return r.others.Give(ctx, in, func(ctx context.Context) ([]registry.Entry, error) { return r.foreignOf(ctx, in.Service, in.Cluster) })
}

// misplaced are entries with the cluster's ownership tag under this driver's nodes, where it would not write them.
func misplaced(number int, s *service) bool {
	in := entry(s, "").Instance
	return nodeNumber(in.Address) != number || key(serviceID(in)) != key(s.ID)
}

// namesOf are the services of some entries.
func namesOf(entries []registry.Entry) []string {
	services := map[string]bool{}
	for _, e := range entries {
		services[e.Service] = true
	}
	return slices.Collect(maps.Keys(services))
}
