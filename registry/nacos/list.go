package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// listedService is a service with its instances, those out of service included. /instance/list leaves them out.
type listedService struct {
	Name     string `json:"serviceName"`
	Group    string `json:"groupName"`
	Clusters map[string]struct {
		Hosts []host `json:"hosts"`
	} `json:"clusterMap"`
}

func (r *Registry) list(ctx context.Context, cluster string) ([]registry.Entry, error) {
	a, err := r.client.do(ctx, call{do: listAll, limit: maxListing})
	if err != nil {
		return nil, err
	}
	services, err := decodeServices(a)
	if err != nil {
		return nil, err
	}
	var entries []registry.Entry
	for _, s := range services {
		if s.Group != r.opts.Group {
			continue
		}
		for within, c := range s.Clusters {
			found, err := s.entries(c.Hosts, within == r.opts.Cluster, cluster)
			if err != nil {
				return nil, err
			}
			entries = append(entries, found...)
		}
	}
	return entries, nil
}

// entries are those of one Nacos cluster. Rollcall's own stand in that of the options. Others' count in each, since clients that
// name none are given the instances of all.
func (s *listedService) entries(hosts []host, own bool, cluster string) (entries []registry.Entry, _ error) {
	for _, h := range hosts {
		switch {
		case h.Enabled != nil && h.isForeign():
			if h.IP != "" && h.Port != 0 { // else it is at no pod's address: Dubbo 2 registers consumers with port 0
				entries = append(entries, driverkit.ForeignEntry(s.Name, h.IP, h.Port))
			}
		case own && h.Metadata[registry.MetaCluster] == cluster:
			e, err := h.entry(s.Name)
			if err != nil {
				return nil, err
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// decodeServices takes a whole page or nothing: an entry that is missing from it may be registered for ever.
func decodeServices(a *answer) ([]listedService, error) {
	if a.route.old {
		services := []listedService{}
		if err := json.Unmarshal(a.body, &services); err != nil {
			return nil, fmt.Errorf("decoding the answer: %w", err)
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
	if h.IP == "" || h.Port == 0 || h.Enabled == nil {
		return registry.Entry{}, fmt.Errorf("the answer has an instance of %s without ip, port or enabled", service)
	}
	e := registry.Entry{State: registry.OutOfService}
	if *h.Enabled {
		e.State = registry.InService
	}
	for _, key := range leaseKeys() {
		delete(h.Metadata, key)
	}
	e.SetMeta(h.Metadata)
	e.Service, e.Address, e.Port = service, h.IP, h.Port
	return e, nil
}
