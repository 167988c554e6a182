package read

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// timeout bounds one reading.
const timeout = 2 * time.Second

// Reader returns every entry of a service that clients can see, in service or not.
type Reader func(ctx context.Context) ([]registry.Entry, error)

// Listed reads the list of the HTTP registry protocol at its URL, which has every service.
func Listed(url, service string) Reader {
	return func(ctx context.Context) ([]registry.Entry, error) {
		var list struct {
			Instances []registry.Entry `json:"instances"`
		}
		err := get(ctx, url, &list)
		return slices.DeleteFunc(list.Instances, func(e registry.Entry) bool { return e.Service != service }), err
	}
}

// Consul reads the health endpoint, https://developer.hashicorp.com/consul/api-docs/health#list-service-instances-for-service.
func Consul(endpoint, service string) Reader {
	return func(ctx context.Context) ([]registry.Entry, error) {
		var nodes []ConsulNode
		if err := get(ctx, endpoint+"/v1/health/service/"+url.PathEscape(service), &nodes); err != nil {
			return nil, err
		}
		return ConsulEntries(nodes), nil
	}
}

// ConsulNode is one of the health endpoint's.
type ConsulNode struct {
	Service struct {
		Service, Address string
		Port             int
		Meta             map[string]string
	}
	Checks []struct{ Status string }
}

// ConsulEntries are those of the nodes.
func ConsulEntries(nodes []ConsulNode) []registry.Entry {
	entries := make([]registry.Entry, 0, len(nodes))
	for _, n := range nodes {
		passing := true
		for _, c := range n.Checks {
			passing = passing && c.Status == "passing"
		}
		entries = append(entries, entry(n.Service.Service, n.Service.Address, n.Service.Port, n.Service.Meta, passing))
	}
	return entries
}

// Eureka reads an application, as its clients do: https://github.com/Netflix/eureka/wiki/Eureka-REST-operations. The
// server answers from its caches.
func Eureka(endpoint, service string) Reader {
	return func(ctx context.Context) ([]registry.Entry, error) {
		var answer struct {
			Application struct {
				Instance []struct {
					IPAddr string `json:"ipAddr"`
					Port   struct {
						Number int `json:"$"`
					} `json:"port"`
					Status   string            `json:"status"`
					Metadata map[string]string `json:"metadata"`
				} `json:"instance"`
			} `json:"application"`
		}
		err := get(ctx, endpoint+"/apps/"+url.PathEscape(service), &answer)
		if registries.IsNotFound(err) {
			return nil, nil // an application with no instance is none
		}
		if err != nil {
			return nil, err
		}
		var entries []registry.Entry
		for _, in := range answer.Application.Instance {
			entries = append(entries, entry(service, in.IPAddr, in.Port.Number, in.Metadata, in.Status == "UP"))
		}
		return entries, nil
	}
}

// Nacos reads the instances of a service by the client API of a 3.x server, https://nacos.io/en/docs/v3.0/manual/user/open-api/.
// It gives out none that is not enabled.
func Nacos(endpoint, service string) Reader {
	return NacosList(endpoint+"/v3/client/ns/instance/list", service)
}

// NacosList is [Nacos] by the path of any version's list.
func NacosList(list, service string) Reader {
	return func(ctx context.Context) ([]registry.Entry, error) {
		type instance struct {
			IP       string            `json:"ip"`
			Port     int               `json:"port"`
			Healthy  bool              `json:"healthy"`
			Enabled  bool              `json:"enabled"`
			Metadata map[string]string `json:"metadata"`
		}
		var answer struct {
			Data  []instance `json:"data"`  // of version 3
			Hosts []instance `json:"hosts"` // of version 2
		}
		query := url.Values{"serviceName": {service}}
		if err := get(ctx, list+"?"+query.Encode(), &answer); err != nil {
			return nil, err
		}
		entries := make([]registry.Entry, 0, len(answer.Data)+len(answer.Hosts))
		for _, in := range append(answer.Data, answer.Hosts...) {
			entries = append(entries, entry(service, in.IP, in.Port, in.Metadata, in.Healthy && in.Enabled))
		}
		return entries, nil
	}
}

func entry(service, address string, port int, meta map[string]string, serving bool) registry.Entry {
	e := registry.Entry{State: registry.OutOfService}
	if serving {
		e.State = registry.InService
	}
	e.SetMeta(meta)
	e.Service, e.Address, e.Port = service, address, port
	return e
}

func get(ctx context.Context, from string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	server := registries.Client{URL: from, HTTP: http.DefaultClient, Header: http.Header{"Accept": {"application/json"}}}
	text, err := server.Do(ctx, http.MethodGet, "", nil)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("reading the registry: %w", err)
	}
	return nil
}
