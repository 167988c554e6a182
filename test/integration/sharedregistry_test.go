package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	consuldriver "github.com/rollcall-dev/rollcall/registry/consul"
	eurekadriver "github.com/rollcall-dev/rollcall/registry/eureka"
	nacosdriver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// sharedRegistries are the drivers whose registry two clusters share: Consul, or what ROLLCALL_TWO_CLUSTERS lists. Nacos and Eureka
// take minutes, so they are for each night.
func sharedRegistries() []string {
	if chosen := strings.Fields(os.Getenv("ROLLCALL_TWO_CLUSTERS")); len(chosen) > 0 {
		return chosen
	}
	return []string{"consul"}
}

// sharedRegistry is a real registry as both clusters, and their clients, see it.
type sharedRegistry struct {
	driver, endpoint string
	options          map[string]any
	construct        registry.Constructor
	// entries are a service's by ID, as the registry itself has them: with all that changes when somebody writes an entry.
	entries func(ctx context.Context, service string) (map[string]any, error)
	// reader is a client of a service.
	reader func(service string) read.Reader
}

func startShared(t *testing.T, name string) sharedRegistry {
	t.Helper()
	start, known := map[string]func(*testing.T) sharedRegistry{"consul": shareConsul, "nacos": shareNacos, "eureka": shareEureka}[name]
	if !known {
		t.Fatalf("ROLLCALL_TWO_CLUSTERS has %q: set consul, nacos or eureka", name)
	}
	return start(t)
}

func (r sharedRegistry) open(t *testing.T) fakeregistry.Backend {
	t.Helper()
	options, err := json.Marshal(r.options)
	expect.NoError(t, err)
	return drivertest.Open[fakeregistry.Backend](t, r.construct, registry.Config{Endpoint: r.endpoint, Options: options})
}

// shareConsul: a change raises an entry's ModifyIndex, and one that was away comes back with another CreateIndex.
func shareConsul(t *testing.T) sharedRegistry {
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	return sharedRegistry{
		driver: "consul", endpoint: server.URL, construct: consuldriver.New, options: map[string]any{},
		entries: func(ctx context.Context, service string) (map[string]any, error) {
			var all []any
			err := server.Do(ctx, http.MethodGet, "/v1/health/service/"+service, nil, &all)
			return byID(all, func(e any) any {
				ofNode := func(check any) bool { return field(check, "ServiceID") == "" }
				delete(e.(map[string]any), "Node")
				e.(map[string]any)["Checks"] = slices.DeleteFunc(e.(map[string]any)["Checks"].([]any), ofNode)
				return field(e, "Service", "ID")
			}), err
		},
		reader: func(service string) read.Reader { return read.Consul(server.URL, service) },
	}
}

// shareNacos: an instance has neither a count nor a time of its changes, so only what is looked at meanwhile shows one that is undone.
func shareNacos(t *testing.T) sharedRegistry {
	server := registries.Use(t, registries.With(nacos.Start, nacos.Options{Version: nacos.V3}))
	return sharedRegistry{
		driver: "nacos", endpoint: server.Endpoint, construct: nacosdriver.New, options: map[string]any{},
		entries: func(ctx context.Context, service string) (map[string]any, error) {
			query := url.Values{"serviceName": {service}, "groupName": {"DEFAULT_GROUP"}, "clusterName": {"DEFAULT"}}
			body, err := server.Do(ctx, http.MethodGet, "/v3/admin/ns/instance/list", query, "")
			if registries.IsNotFound(err) {
				return nil, nil
			}
			var answer struct{ Data []any }
			if err == nil {
				err = json.Unmarshal(body, &answer)
			}
			return byID(answer.Data, func(e any) any { return field(e, "ip") }), err
		},
		reader: func(service string) read.Reader { return read.Nacos(server.Endpoint+"/nacos", service) },
	}
}

// shareEureka: each change of an entry sets its times, of which renewals set one.
func shareEureka(t *testing.T) sharedRegistry {
	server := registries.Use(t, registries.With(eureka.Start, eureka.Options{}))
	return sharedRegistry{
		driver: "eureka", endpoint: server.Endpoint, construct: eurekadriver.New,
		options: map[string]any{"listStalenessInSecs": int(server.Staleness.Seconds())},
		entries: func(ctx context.Context, service string) (map[string]any, error) {
			body, err := server.Do(ctx, http.MethodGet, "/apps/"+service, nil)
			if registries.IsNotFound(err) {
				return nil, nil
			}
			var answer struct {
				Application struct{ Instance []any }
			}
			if err == nil {
				err = json.Unmarshal(body, &answer)
			}
			return byID(answer.Application.Instance, func(e any) any {
				if lease, is := field(e, "leaseInfo").(map[string]any); is {
					delete(lease, "lastRenewalTimestamp")
				}
				return field(e, "instanceId")
			}), err
		},
		reader: func(service string) read.Reader { return read.Eureka(server.Endpoint, service) },
	}
}

func byID(all []any, id func(any) any) map[string]any {
	entries := map[string]any{}
	for _, e := range all {
		entries[id(e).(string)] = e
	}
	return entries
}

// metaOf is the metadata of an entry in any registry's JSON.
func metaOf(entry any) map[string]any {
	for _, path := range [][]string{{"metadata"}, {"Service", "Meta"}} {
		if meta, is := field(entry, path...).(map[string]any); is {
			return meta
		}
	}
	return nil
}

// field is a value in decoded JSON, nil for none.
func field(of any, path ...string) any {
	for _, name := range path {
		object, _ := of.(map[string]any)
		of = object[name]
	}
	return of
}
