package consul_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

// wrongToken has the form of one, and is none.
const wrongToken = "5ec4e700-0000-4000-8000-bad70ce00000"

// shared and guarded are the servers of all tests that neither restart them nor need them empty: without and with access
// control.
var (
	shared  = registries.Share(registries.With(consul.Start, consul.Options{}))
	guarded = registries.Share(registries.With(consul.Start, consul.Options{ACL: true}))
)

func TestMain(m *testing.M) { registries.Main(m, shared, guarded) }

// TestConformance runs the suite on a server of each kind. The suite restarts it.
func TestConformance(t *testing.T) {
	t.Parallel()
	type row struct {
		server consul.Options
		more   string // of the driver's options
	}
	for name, tc := range map[string]row{
		"Probes": {more: `,"probe":true`}, "Deletes": {more: `,"outOfRotation":"delete"`},
		"ACL": {server: consul.Options{ACL: true}}, "MutualTLS": {server: consul.Options{ClientCertificates: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness(t, registries.Use(t, registries.With(consul.Start, tc.server)), tc.more)
			if name == "Deletes" {
				h.Lacks = map[registrytest.Capability]string{registrytest.OutOfServiceState: "the entry is deleted, for readers that heed no check"}
			}
			registrytest.Run(t, h)
		})
	}
}

// TestProbeHeedsOthersChecks: clients are not given a service whose node fails the check of somebody else, as consul-esm.
func TestProbeHeedsOthersChecks(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	cfg := configOf(t, server)
	cfg.Cluster, cfg.Options = t.Name(), fmt.Appendf(nil, `{"nodePrefix":%q,"probe":true}`, prefix)
	d, in := drivertest.Open[interface {
		registry.Registry
		registry.Prober
	}](t, driver.New, cfg), neighbour(t, 1)
	expect.NoError(t, d.Register(t.Context(), in))
	expect.NoError(t, d.Probe(t.Context(), in))

	found, err := health(t.Context(), server, in.Service, false)
	expect.NoError(t, err)
	judge := func(status string) {
		expect.NoError(t, server.Do(t.Context(), http.MethodPut, "/v1/catalog/register", object{
			"Node": found[0].Node.Node, "SkipNodeUpdate": true,
			"Check": object{"CheckID": "ping", "Name": "ping", "Status": status, "Output": "no answer"},
		}, nil))
	}
	judge("critical")
	expect.Error(t, "it is not passing", d.Probe(t.Context(), in), `check "ping" is critical: no answer`)
	judge("passing")
	expect.NoError(t, d.Probe(t.Context(), in))
}

func harness(t *testing.T, server *consul.Server, more string) registrytest.Harness {
	t.Helper()
	cfg := configOf(t, server)
	cfg.Options = fmt.Appendf(nil, `{"agentEndpoint":%q%s}`, agentsLike(server), more)
	wrong := configOf(t, guarded.Use(t))
	wrong.Auth.TokenFile = drivertest.File(t, wrongToken)
	h := drivertest.HTTPHarness(driver.New, cfg, http.StatusBadRequest, http.StatusInternalServerError)
	h.Truth = func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		return healthy(ctx, server, cluster)
	}
	h.LosingAnswers = drivertest.LosingAnswers(driver.New, cfg)
	drivertest.Meter(&h, driver.New, cfg, server)
	h.Bare = func(testing.TB) registrytest.Bare { return bare(server) }
	h.Foreign = func(t testing.TB, at registry.Instance) func() { return registerItself(t, server, at) }
	h.Copy = func(t testing.TB, of registry.Instance) func() {
		return leftBehind(t, cfg, of)
	}
	h.App = func(t testing.TB, at registry.Instance) registrytest.App { return newApp(t, server, at) }
	h.Restart = func(t testing.TB) { expect.NoError(t, server.Restart(t.Context())) }
	h.WrongCredentials = func(t testing.TB) registry.Registry { return open(t, wrong) }
	h.Secrets = []string{wrongToken, token(t, cfg)}
	return h
}

// bare writes what the driver does, under as many nodes, by plain requests.
func bare(server *consul.Server) registrytest.Bare {
	client := registries.Client{
		URL: server.URL, HTTP: &http.Client{Transport: &http.Transport{}}, Header: http.Header{"X-Consul-Token": {server.ManagementToken}},
	}
	put := func(ctx context.Context, path string, body any) error {
		raw, err := json.Marshal(body)
		if err == nil {
			_, err = client.Do(ctx, http.MethodPut, path, raw)
		}
		return err
	}
	node := func(in registry.Instance) string {
		return fmt.Sprintf("bare-%02d", crc32.ChecksumIEEE([]byte(in.Address))%32)
	}
	status := func(in registry.Instance, status string) object {
		return object{"CheckID": in.UID, "Name": "bare", "ServiceID": in.UID, "Status": status}
	}
	return registrytest.Bare{
		Register: func(ctx context.Context, in registry.Instance) error {
			return put(ctx, "/v1/catalog/register", object{
				"Node": node(in), "Address": "127.0.0.1", "SkipNodeUpdate": true, "Check": status(in, "passing"),
				"Service": object{"ID": in.UID, "Service": in.Service, "Address": in.Address, "Port": in.Port, "Meta": in.Meta()},
			})
		},
		FailOver: func(ctx context.Context, in registry.Instance) error {
			return put(ctx, "/v1/catalog/register", object{"Node": node(in), "SkipNodeUpdate": true, "Check": status(in, "critical")})
		},
		Deregister: func(ctx context.Context, in registry.Instance) error {
			return put(ctx, "/v1/catalog/deregister", object{"Node": node(in), "ServiceID": in.UID})
		},
		Get: func(ctx context.Context, in registry.Instance) error {
			_, err := client.Do(ctx, http.MethodGet, "/v1/catalog/node-services/"+node(in)+"?filter="+
				url.QueryEscape(fmt.Sprintf("ID == %q", in.UID)), nil)
			return err
		},
	}
}

// documentedRules are those that the driver's page tells people to give the token.
func documentedRules(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/drivers/consul.md")
	expect.NoError(t, err)
	_, rules, found := strings.Cut(string(page), "```hcl\n")
	rules, _, closed := strings.Cut(rules, "```")
	if !found || !closed {
		t.Fatal("the driver's page shows no rules")
	}
	return rules
}

// configOf is that of a client with no more rights than the driver's page says it needs.
func configOf(t *testing.T, server *consul.Server) registry.Config {
	t.Helper()
	cfg := at(server.URL)
	cfg.Options = fmt.Appendf(nil, `{"agentEndpoint":%q}`, agentsLike(server))
	cfg.TLS = registry.TLS{CAFile: server.CAFile, CertFile: server.CertFile, KeyFile: server.KeyFile}
	if server.ManagementToken != "" {
		cfg.Auth.TokenFile = tokenFile(t, server, documentedRules(t))
	}
	return cfg
}

func tokenFile(t *testing.T, server *consul.Server, rules string) string {
	t.Helper()
	secret, err := server.NewToken(t.Context(), rules)
	expect.NoError(t, err)
	return drivertest.File(t, secret+"\n")
}

func token(t *testing.T, cfg registry.Config) string {
	t.Helper()
	credentials, err := driverkit.ReadCredentials(cfg.Auth, driverkit.Token)
	expect.NoError(t, err)
	return cmp.Or(credentials.Token, wrongToken)
}

func at(endpoint string) registry.Config { return registry.Config{Cluster: "test", Endpoint: endpoint} }

func open(t testing.TB, cfg registry.Config) *driver.Registry {
	t.Helper()
	return drivertest.Open[*driver.Registry](t, driver.New, cfg)
}

// healthEntry is one of /v1/health/service as a client reads it.
type healthEntry struct {
	Node    struct{ Node, Address string }
	Service struct {
		ID, Service, Address string
		Port                 int
		Tags                 []string
		Meta                 map[string]string
		Weights              struct{ Passing int }
		TaggedAddresses      map[string]struct {
			Address string
			Port    int
		}
	}
	Checks []struct{ Status string }
}

// health returns all instances of a service, or those that its clients are given.
func health(ctx context.Context, server *consul.Server, service string, passing bool) ([]healthEntry, error) {
	path := "/v1/health/service/" + url.PathEscape(service)
	if passing {
		path += "?passing"
	}
	var entries []healthEntry
	err := server.Do(ctx, http.MethodGet, path, nil, &entries)
	return entries, err
}

// healthy reads a cluster's entries by the endpoint that clients read, and not as the driver lists them.
func healthy(ctx context.Context, server *consul.Server, cluster string) ([]registry.Entry, error) {
	names := map[string][]string{}
	filter := fmt.Sprintf("ServiceMeta[%q] == `%s`", registry.MetaCluster, cluster)
	if err := server.Do(ctx, http.MethodGet, "/v1/catalog/services?filter="+url.QueryEscape(filter), nil, &names); err != nil {
		return nil, err
	}
	var entries []registry.Entry
	for name := range names {
		all, err := health(ctx, server, name, false)
		if err != nil {
			return nil, err
		}
		passing, err := health(ctx, server, name, true)
		if err != nil {
			return nil, err
		}
		given := map[string]bool{}
		for _, e := range passing {
			given[e.Service.ID] = true
		}
		for _, e := range all {
			// Names that differ in case only are one name to this endpoint.
			if e.Service.Service != name || e.Service.Meta[registry.MetaCluster] != cluster {
				continue
			}
			entries = append(entries, entryOf(e, given[e.Service.ID]))
		}
	}
	return entries, nil
}

func entryOf(e healthEntry, given bool) registry.Entry {
	entry := registry.Entry{State: registry.OutOfService}
	if given {
		entry.State = registry.InService
	}
	entry.Service, entry.Address, entry.Port = e.Service.Service, e.Service.Address, e.Service.Port
	entry.SetMeta(e.Service.Meta)
	entry.Tags = slices.Sorted(slices.Values(e.Service.Tags))
	return entry
}

// registerItself puts a service into the catalog as an agent in the pod does: under its node, which has the address.
// leftBehind registers the instance under another nodePrefix.
func leftBehind(t testing.TB, cfg registry.Config, of registry.Instance) (remove func()) {
	t.Helper()
	cfg.Cluster, cfg.Options = of.Cluster, json.RawMessage(`{"nodePrefix":"rollcall-old-"}`)
	old := drivertest.Open[registry.Registry](t, driver.New, cfg)
	ctx := context.WithoutCancel(t.Context())
	expect.NoError(t, old.Register(ctx, of))
	return func() { expect.NoError(t, old.Deregister(ctx, of)) }
}

func registerItself(t testing.TB, server *consul.Server, at registry.Instance) (remove func()) {
	t.Helper()
	node := "agent-" + strings.ToLower(rand.Text())
	do := func(path string, body map[string]any) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		expect.NoError(t, server.Do(ctx, http.MethodPut, path, body, nil))
	}
	do("/v1/catalog/register", map[string]any{
		"Node": node, "Address": at.Address, "Service": map[string]any{"ID": "web", "Service": at.Service, "Port": at.Port},
		"Check": map[string]any{"CheckID": "load", "Name": "load", "ServiceID": "web", "Status": "warning"}, // as DNS gives it
	})
	return func() { do("/v1/catalog/deregister", map[string]any{"Node": node}) }
}
