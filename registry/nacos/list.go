package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// listedService is a service with its instances, those out of rotation included. /instance/list leaves them out.
type listedService struct {
	Name     string `json:"serviceName"`
	Group    string `json:"groupName"`
	Clusters map[string]struct {
		Hosts []host `json:"hosts"`
	} `json:"clusterMap"`
}

func (r *Registry) list(ctx context.Context, cluster string) ([]registry.Entry, error) {
	services, err := r.services(ctx)
	if err != nil {
		return nil, err
	}
	r.client.members.Refresh(ctx)
	var entries []registry.Entry
	for _, s := range services {
		if s.Group != r.opts.Group {
			continue
		}
		stay, err := r.unhealthyStay(ctx, &s)
		if err != nil {
			return nil, fmt.Errorf("checking the health checker of service %s: %w", s.Name, err)
		}
		found, err := s.entries(r.opts, cluster, stay)
		if err != nil {
			return nil, err
		}
		entries = append(entries, found...)
	}
	return entries, nil
}

// unhealthyStay reports whether the service has instances of Rollcall that are unhealthy and stay so, since no server probes them. A server
// that has not yet learned that the checker is off probes an instance once, and clients are not given it until it is registered again.
func (r *Registry) unhealthyStay(ctx context.Context, s *listedService) (stay bool, err error) {
	unhealthy := func(h host) bool { return h.uid() != "" && h.isUnhealthy() }
	if r.opts.Ephemeral || !slices.ContainsFunc(s.Clusters[r.opts.Cluster].Hosts, unhealthy) {
		return false, nil
	}
	stay, _, err = r.isCheckerOff(ctx, s.Name)
	return stay, err
}

// services are those of the group, and of others.
func (r *Registry) services(ctx context.Context) ([]listedService, error) {
	a, err := r.client.do(ctx, call{do: listAll, limit: maxListing})
	if err != nil {
		return nil, err
	}
	return decodeServices(a)
}

// hosts are the instances of a service in the Nacos cluster of the options, those out of rotation included. Calls that ask at the same
// moment share one answer.
func (r *Registry) hosts(ctx context.Context, service string) ([]host, error) {
	return r.client.hosts.Ask(ctx, r.key(service), func(ctx context.Context) ([]host, error) {
		hosts, _, err := r.readHosts(ctx, nil, service)
		return hosts, err
	})
}

// hostsOfAll are the instances that any of the servers has.
func (r *Registry) hostsOfAll(ctx context.Context, service string) ([]host, error) {
	return r.client.hosts.Ask(ctx, "all "+r.key(service), func(ctx context.Context) (all []host, err error) {
		err = r.each(ctx, func(ctx context.Context, at *driverkit.Server) (driverkit.Server, error) {
			hosts, asked, err := r.readHosts(ctx, at, service)
			all = append(all, hosts...)
			return asked, err
		})
		return all, err
	})
}

// readHosts asks a server, nil for any.
func (r *Registry) readHosts(ctx context.Context, at *driverkit.Server, service string) ([]host, driverkit.Server, error) {
	form := url.Values{"clusterName": {r.opts.Cluster}, "pageNo": {"1"}, "pageSize": {strconv.Itoa(onePage)}}
	a, asked, err := r.client.doAt(ctx, at, call{do: listCluster, service: service, form: form, limit: maxListing})
	if isNone(err) {
		return nil, asked, nil
	}
	if err != nil {
		return nil, asked, err
	}
	var page struct{ List []host }
	if a.route.old {
		err = a.decode(&page)
	} else {
		err = a.decode(&page.List)
	}
	return page.List, asked, err
}

// key tells the questions about a service in the Nacos cluster of the options from all others.
func (r *Registry) key(service string) string { return fmt.Sprintf("%q", r.cluster(service)) }

// addressesOf returns the texts, other than the instance's own, in which others have written its address in the Nacos cluster of the
// options.
func (r *Registry) addressesOf(ctx context.Context, in registry.Instance) (texts []string, err error) {
	hosts, err := r.hostsOfAll(ctx, in.Service)
	for _, h := range hosts {
		is := h.uid() == "" && h.Port == in.Port && h.IP != in.Address && driverkit.SameAddress(h.IP, in.Address)
		if is && !slices.Contains(texts, h.IP) {
			texts = append(texts, h.IP)
		}
	}
	return texts, err
}

// elsewhere returns the Nacos cluster, other than that of the options, in which clients are given an application's entry at the
// instance's place, "" for none.
func (r *Registry) elsewhere(ctx context.Context, in registry.Instance) (string, error) {
	checkers, err := r.checkersOfAll(ctx, in.Service)
	if err != nil {
		return "", err
	}
	for _, within := range slices.Sorted(maps.Keys(checkers)) {
		if within == r.opts.Cluster {
			continue
		}
		opts := r.opts
		opts.Cluster = within
		there := &Registry{client: r.client.in(opts), opts: opts}
		all, err := appEntries{there}.spelled(ctx, in)
		if err != nil {
			return "", err
		}
		for _, at := range all {
			if _, _, state, err := there.appEntry(ctx, at); err != nil || state == registry.InService {
				return within, err
			}
		}
	}
	return "", nil
}

// entries are Rollcall's own, in one Nacos cluster, and others' in all, since clients that name none are given the instances of
// all. If others have a place in several, it counts once: those are not taken out together. Of Rollcall's own, those that are unhealthy
// and stay so are out of rotation. One in another Nacos cluster, or with its address in another form, is foreign: no call changes it.
func (s *listedService) entries(opts Options, cluster string, stay bool) (entries []registry.Entry, _ error) {
	given := map[string]bool{}
	for _, h := range s.Clusters[opts.Cluster].Hosts {
		switch {
		case h.IP == "" || h.Port == 0: // no Rollcall wrote it, whatever metadata it has: it must not fail the list of all
		case h.isListedForeign():
			e := h.foreign(s.Name)
			given[e.Endpoint()] = true
			entries = append(entries, e)
		case h.Metadata[registry.MetaCluster] == cluster:
			e, err := h.entry(s.Name)
			if err != nil {
				return nil, err
			}
			if opts.written(e.Instance).Address != h.IP {
				if h.isCopyOf(cluster) {
					entries = append(entries, driverkit.Tagged(h.foreign(s.Name), h.Metadata, "IP "+h.IP))
				}
				continue
			}
			if stay && h.isUnhealthy() {
				e.State = registry.OutOfService
			}
			entries = append(entries, e)
		}
	}
	return append(entries, s.elsewhere(opts.Cluster, cluster, given)...), nil
}

// elsewhere are the foreign entries in other Nacos clusters, but for those at the endpoints that are given already.
func (s *listedService) elsewhere(within, cluster string, given map[string]bool) (entries []registry.Entry) {
	for other, c := range s.Clusters {
		if other == within {
			continue
		}
		for _, h := range c.Hosts {
			switch e := h.foreign(s.Name); {
			case h.isListedForeign() && !given[e.Endpoint()]:
				given[e.Endpoint()] = true
				entries = append(entries, e)
			case h.isCopyOf(cluster):
				entries = append(entries, driverkit.Tagged(e, h.Metadata, "in Nacos cluster "+other))
			}
		}
	}
	return entries
}

func (h *host) foreign(service string) registry.Entry {
	e := driverkit.Foreign(service, h.IP, h.Port)
	if address := h.Metadata[registry.MetaIPv6]; address != "" {
		e.Metadata = map[string]string{registry.MetaIPv6: address}
	}
	return e
}

// isUnhealthy holds for a listed instance.
func (h *host) isUnhealthy() bool {
	if h.Valid != nil {
		return !*h.Valid
	}
	return !h.Healthy
}

// isListedForeign holds for one that may be at a pod's address: Dubbo 2 registers consumers with port 0.
func (h *host) isListedForeign() bool {
	return h.Enabled != nil && h.isForeign() && h.IP != "" && h.Port != 0
}

// isCopyOf holds for a listed instance that clients are given and that has the ownership tag of a cluster of Kubernetes.
func (h *host) isCopyOf(cluster string) bool {
	return h.uid() != "" && driverkit.IsForeignTo(cluster, h.Metadata) && h.Enabled != nil && *h.Enabled && h.IP != "" && h.Port != 0
}

// decodeServices takes a whole page or nothing: an entry that is missing from it may be registered forever.
func decodeServices(a *answer) ([]listedService, error) {
	if a.route.old {
		var services []listedService
		if err := json.Unmarshal(a.body, &services); err != nil {
			return nil, fmt.Errorf("decoding the answer: %w", err)
		}
		if services == nil {
			return nil, errors.New("the answer is null, not a list of services")
		}
		return services, nil
	}
	var page struct {
		Total *int            `json:"totalCount"`
		Items []listedService `json:"pageItems"`
	}
	if err := a.decode(&page); err != nil {
		return nil, err
	}
	if page.Total == nil || *page.Total != len(page.Items) {
		return nil, errors.New("the answer does not have all services")
	}
	return page.Items, nil
}

func (h *host) entry(service string) (registry.Entry, error) {
	if h.Enabled == nil {
		return registry.Entry{}, fmt.Errorf("the answer has an instance of %s without enabled", service)
	}
	e := registry.Entry{State: registry.OutOfService}
	if *h.Enabled {
		e.State = registry.InService
	}
	for _, key := range leaseKeys() {
		delete(h.Metadata, key)
	}
	e.SetMeta(h.Metadata)
	e.Service, e.Address, e.Port = service, strings.Trim(h.IP, "[]"), h.Port
	return e, nil
}
