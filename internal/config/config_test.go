package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const minimal = `
cluster: prod-1
registry:
  driver: memory
hooks:
  owned: [example.com/*]
`

func limits() Limits {
	return Limits{Drivers: []string{"memory", "http"}}
}

// unexported compares what the file says, and not what stood in the files that it names.
func unexported() []cmp.Option {
	sameSelector := cmp.Comparer(func(a, b labels.Selector) bool {
		return (a == nil) == (b == nil) && (a == nil || a.String() == b.String())
	})
	return []cmp.Option{cmp.AllowUnexported(Config{}), cmpopts.IgnoreFields(Config{}, "file"), sameSelector}
}

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte(minimal), limits())
	expect.NoError(t, err)
	want := &Config{
		Cluster:           "prod-1",
		Lease:             DefaultLease,
		Registries:        map[string]Registry{"default": of("memory", "", 5*time.Second, 384)},
		DefaultRegistries: []string{"default"},
		Hooks:             lifecycle.Ownership{Owned: []string{"example.com/*"}},
		Service:           service.Rules{Name: "{label:app}", Address: "PodIP", NetworkAddresses: service.PrivateRanges()},
		Drain:             drain.Fixed(15 * time.Second),
		PanicThreshold:    50,
		Resync:            Resync{MaxRemovals: intstr.FromString("20%")},
		Features:          Features{Evictions: Evictions{Limit: 10 * time.Minute, Name: "rollcall-evictions"}},
		single:            true,
	}
	if diff := cmp.Diff(want, got, unexported()...); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	expectEffective(t, got)
}

func TestLoadEveryField(t *testing.T) {
	t.Parallel()
	selector, err := labels.Parse("tier=pay,env notin (dev)")
	expect.NoError(t, err)
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(`---
apiVersion: rollcall.dev/v1alpha1
kind: Configuration
cluster: prod-1
namespaces: [web, api]
leaseDuration: 30s
registry:
  driver: http
  endpoint: https://registry.example.com
  tls: {caFile: /etc/rollcall/tls/ca.crt, certFile: /etc/rollcall/tls/tls.crt, keyFile: /etc/rollcall/tls/tls.key}
  auth: {tokenFile: /etc/rollcall/auth/token, username: rollcall, passwordFile: /etc/rollcall/auth/password}
  timeout: 1500ms
  maxInFlight: 16
  options: {datacenter: dc1, weight: 10000000000}
hooks:
  owned: [example.com/*, example.io/unready-blocker, bare]
  newlyCreated: [example.com/newly-create, example.io/initialing]
service:
  name: "{namespace}-{label:app}"
  port: 8080
  address: HostIP
  networks: [storage, infra/fast]
  networkAddresses: [172.20.0.0/16, "2001:db8::/32"]
  allowed:
  - {namespaces: ["team-*", ops], names: ["{namespace}.*"], shared: true}
  - namespaces: [shop]
    namespaceSelector: {matchLabels: {tier: pay}, matchExpressions: [{key: env, operator: NotIn, values: [dev]}]}
    names: [payments]
  tags: ["version-{label:version}", http]
  metadata: {version: "{label:version}", site: "eu-{region}"}
drain: 0s
panicThreshold: 0%
resync: {interval: 30s, maxRemovals: 5}
proceedAfter: {preDelete: 90s, inPlaceUpdate: 5m}
enroll: true
podCondition: true
statusPage: true
evictions: {enabled: true, limit: 2m, name: shop-evictions}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path, limits())
	expect.NoError(t, err)
	section := of("http", "https://registry.example.com", 1500*time.Millisecond, 16)
	section.Takeover = 40 * time.Second
	section.TLS = registry.TLS{
		CAFile: "/etc/rollcall/tls/ca.crt", CertFile: "/etc/rollcall/tls/tls.crt", KeyFile: "/etc/rollcall/tls/tls.key",
	}
	section.Auth = registry.Auth{
		TokenFile: "/etc/rollcall/auth/token", Username: "rollcall", PasswordFile: "/etc/rollcall/auth/password",
	}
	section.Options = json.RawMessage(`{"datacenter":"dc1","weight":10000000000}`)
	want := &Config{
		Cluster:           "prod-1",
		Lease:             Lease(30 * time.Second),
		Namespaces:        service.Namespaces{Names: []string{"api", "web"}},
		Registries:        map[string]Registry{"default": section},
		DefaultRegistries: []string{"default"},
		Hooks: lifecycle.Ownership{
			Owned:        []string{"example.com/*", "example.io/unready-blocker", "bare"},
			NewlyCreated: []string{"example.com/newly-create", "example.io/initialing"},
		},
		Service: service.Rules{
			Name: "{namespace}-{label:app}", Port: 8080, Address: "HostIP", Networks: []string{"storage", "infra/fast"},
			NetworkAddresses: ranges(t, "172.20.0.0/16", "2001:db8::/32"), Tags: []service.ValueTemplate{"version-{label:version}", "http"},
			Metadata: map[string]service.ValueTemplate{
				"version": "{label:version}", "site": "eu-{region}",
			},
			Allowed: service.Policy{
				{Namespaces: []service.NamespacePattern{"team-*", "ops"}, Names: []service.NamePattern{"{namespace}.*"}, Shared: true},
				{
					Namespaces: []service.NamespacePattern{"shop"}, Selector: selector,
					Names: []service.NamePattern{"payments"},
				},
			},
		},
		PanicThreshold: 0,
		Resync:         Resync{Interval: 30 * time.Second, MaxRemovals: intstr.FromInt32(5)},
		ProceedAfter:   lifecycle.FailurePolicy{PreDelete: 90 * time.Second, InPlaceUpdate: 5 * time.Minute},
		Features: Features{
			Enroll: true, PodCondition: true, StatusPage: PageForAll,
			Evictions: Evictions{Enabled: true, Limit: 2 * time.Minute, Name: "shop-evictions"},
		},
		single: true,
	}
	if diff := cmp.Diff(want, got, unexported()...); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	expectEffective(t, got)
}

// expectEffective holds that the effective configuration is accepted and is the same one.
func expectEffective(t *testing.T, c *Config) string {
	t.Helper()
	text, err := c.Effective()
	expect.NoError(t, err)
	again, err := Parse(text, limits())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(c, again, unexported()...); diff != "" {
		t.Errorf("(-read +printed)\n%s\n%s", diff, text)
	}
	return string(text)
}

// TestClusterByUID: one file serves all clusters. It can be checked without one.
func TestClusterByUID(t *testing.T) {
	t.Parallel()
	const uid = "7b0a6c1e-0f0e-4b8e-9a55-3c7f6a1d2e90"
	file := []byte(strings.Replace(minimal, "prod-1", `"eu-{uid}"`, 1))
	for want, readUID := range map[string]func() (string, error){
		"eu-" + uid: func() (string, error) { return uid, nil }, "eu-{uid}": nil,
	} {
		c, err := Parse(file, Limits{ClusterUID: readUID})
		expect.NoError(t, err)
		if got := c.Registries[DefaultRegistry].Cluster; got != want || c.Cluster != want {
			t.Errorf("got cluster %q, and %q for the registry; want %q", c.Cluster, got, want)
		}
		text, err := c.Effective()
		expect.NoError(t, err)
		if !strings.Contains(string(text), "cluster: eu-{uid}") {
			t.Errorf("got %s, want the name as it is written", text)
		}
	}
	refused := Limits{ClusterUID: func() (string, error) { return "", errors.New("forbidden") }}
	_, err := Parse(file, refused)
	expect.Error(t, "entries would carry no name", err, "could not be read: grant Rollcall the right to get that namespace, or set a name without {uid}: forbidden")
	_, err = Parse([]byte(minimal), refused)
	expect.NoError(t, err) // which does not ask
}

// TestNamespacesByLabel: a selector is as in Kubernetes, and is shown as it was written.
func TestNamespacesByLabel(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(minimal+"namespaces: {matchLabels: {team: shop}, matchExpressions: [{key: env, operator: NotIn, values: [dev]}]}\n"), limits())
	expect.NoError(t, err)
	expectEffective(t, c)
	for _, tc := range []struct {
		of   labels.Set
		want bool
	}{
		{labels.Set{"team": "shop"}, true}, {labels.Set{"team": "shop", "env": "dev"}, false}, {labels.Set{"team": "pay"}, false}, {nil, false},
	} {
		expect.Equal(t, tc.want, c.Watches("any", tc.of), "a namespace with %v is watched", tc.of)
	}
	if !c.MayWatch("any") {
		t.Error("a namespace whose labels are not known counts as not watched")
	}
}

func TestEffectiveShowsEveryDefault(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(minimal+"evictions: {enabled: true}\n"), limits())
	expect.NoError(t, err)
	const want = `apiVersion: rollcall.dev/v1alpha1
kind: Configuration
cluster: prod-1
namespaces: []
leaseDuration: 15s
registry:
  driver: memory
  maxInFlight: 384
  registeredBy: Rollcall
  timeout: 5s
hooks:
  newlyCreated: []
  owned:
  - example.com/*
service:
  address: PodIP
  name: '{label:app}'
  networkAddresses:
  - 10.0.0.0/8
  - 100.64.0.0/10
  - 172.16.0.0/12
  - 192.168.0.0/16
  - fc00::/7
  networks: []
  tags: []
drain: 15s
warmUp:
  countsAs: Start
panicThreshold: 50%
resync:
  maxRemovals: 20%
enroll: false
podCondition: false
evictions:
  enabled: true
  limit: 10m0s
  name: rollcall-evictions
`
	if diff := cmp.Diff(want, expectEffective(t, c)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func ranges(t *testing.T, all ...string) (ranges []service.Range) {
	t.Helper()
	for _, text := range all {
		r, err := service.ParseRange(text)
		expect.NoError(t, err)
		ranges = append(ranges, r)
	}
	return ranges
}

// of is a registry of cluster prod-1.
func of(driver, endpoint string, timeout time.Duration, maxInFlight int) Registry {
	return Registry{Driver: driver, MaxInFlight: maxInFlight, Config: registry.Config{
		Cluster: "prod-1", Endpoint: endpoint, Timeout: timeout, Takeover: 20 * time.Second,
	}}
}

func TestParseRegistries(t *testing.T) {
	t.Parallel()
	const head = "cluster: prod-1\nhooks: {owned: [example.com/*]}\n"
	two := func(old, now string) string {
		return head + "registries:\n- {name: old, driver: memory" + old + "}\n- {name: new, driver: http, endpoint: http://new, timeout: 2s" + now + "}\n"
	}
	both := map[string]Registry{
		"old": of("memory", "", 5*time.Second, 384), "new": of("http", "http://new", 2*time.Second, 384),
	}
	type row struct {
		reason     string
		file       string
		registries map[string]Registry
		defaults   []string
		path       string
	}
	expect.Each(t, map[string]row{
		"one of two is the default":  {"pods can be moved one workload at a time", two(", default: true", ""), both, []string{"old"}, "registries[old]"},
		"both are the default":       {"the order means nothing", two(", default: true", ", default: true"), both, []string{"new", "old"}, "registries[new]"},
		"for some namespaces":        {"the others have one too", two(", default: true", ", default: {namespaces: [shop]}"), both, []string{"old"}, "registries[old]"},
		"a single one with a name":   {"there is no other to choose", head + "registries: [{name: old, driver: memory}]", map[string]Registry{"old": both["old"]}, []string{"old"}, "registries[old]"},
		"a single one, chosen":       {"it may be said all the same", head + "registries: [{name: old, default: true, driver: memory}]", map[string]Registry{"old": both["old"]}, []string{"old"}, "registries[old]"},
		"a single one, not chosen":   {"a pod is in one registry at least", head + "registries: [{name: old, default: false, driver: memory}]", map[string]Registry{"old": both["old"]}, []string{"old"}, "registries[old]"},
		"the name that registry had": {"what pods are in under registry stays under this", head + "registries: [{name: default, driver: memory}]", map[string]Registry{"default": both["old"]}, []string{"default"}, "registries[default]"},
		"an empty form beside it":    {"null is nothing", head + "registry: null\nregistries: [{name: old, driver: memory}]", map[string]Registry{"old": both["old"]}, []string{"old"}, "registries[old]"},
		"registry":                   {"it has a name too", head + "registry: {driver: memory}\nregistries: null", map[string]Registry{"default": both["old"]}, []string{"default"}, "registry"},
	}, func(t *testing.T, tc row) {
		got, err := Parse([]byte(tc.file), limits())
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		if shown := strings.Count(expectEffective(t, got), "default: true"); tc.path != "registry" && shown != len(tc.defaults) {
			t.Errorf("%s: %d are printed as the default, want %d", tc.reason, shown, len(tc.defaults))
		}
		expect.Equal(t, tc.registries, got.Registries, "%s: registries", tc.reason)
		expect.Equal(t, tc.defaults, got.DefaultRegistries, "%s: defaults", tc.reason)
		if path := got.RegistryPath(tc.defaults[0]).String(); path != tc.path {
			t.Errorf("%s: it stands at %s, want %s", tc.reason, path, tc.path)
		}
		if names := got.RegistryNames(); !slices.IsSorted(names) || len(names) != len(tc.registries) {
			t.Errorf("%s: names are %q", tc.reason, names)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	// with replaces a line of the minimal configuration, or adds one where old is empty.
	with := func(old, now string) string {
		if old == "" {
			return minimal + now + "\n"
		}
		return strings.Replace(minimal, old, now, 1)
	}
	several := func(registries string) string {
		return "cluster: a\nhooks: {owned: [a.io/b]}\nregistries: " + registries + "\n"
	}
	allowed := func(list string) string { return minimal + "service: {allowed: " + list + "}\n" }
	type row struct {
		reason string
		file   string
		want   []string
	}
	expect.Each(t, map[string]row{
		"an empty file": {"every required field is named at once", "",
			[]string{"cluster: Required", "registry.driver: Required", "http, memory"}},
		"only a comment":    {"it is an empty file too", "# nothing\n", []string{"cluster: Required"}},
		"no YAML":           {"the line is named", "cluster: [", []string{"(file)", "use valid YAML: line 1 of the configuration: did"}},
		"a wrong indent":    {"the parser counts lines from 0", "cluster: a\nregistry:\n  driver: http\n endpoint: b\ndrain: 5s\n", []string{"YAML: line 4 of the"}},
		"a list not closed": {"it can be closed on the next line", "cluster: a\nnamespaces: [b\n", []string{"YAML: line 2 of the"}},
		"a colon too many":  {"the scanner counts lines from 1", "cluster: a\nregistry: b: c\ndrain: 5s\n", []string{"YAML: line 2 of the"}},
		"a list":            {"the file must be an object", "- cluster", []string{"(file)", "use an object with the fields apiVersion, kind, cluster, namespaces"}},
		"two documents":     {"the second would be ignored", minimal + "---\ncluster: b\n", []string{"(file)", "second document"}},
		"a key twice":       {"one of them is a mistake", "cluster: a\n" + minimal, []string{`line 3 of the configuration: key "cluster" already set`}},
		"another version":   {"of its fields only these two are known", "apiVersion: rollcall.dev/v2\nclusters: [a]\n", []string{`apiVersion: Unsupported value: "rollcall.dev/v2": supported values: "rollcall.dev/v1alpha1"`}},
		"another kind":      {"it may be anything", with("", "kind: ConfigMap"), []string{`kind: Unsupported value: "ConfigMap": supported values: "Configuration"`}},
		"an unknown field": {"a typo must not be ignored", with("", "drian: 5s"),
			[]string{"drian", `unknown field (did you mean "drain"?)`, "known here: apiVersion, kind, cluster, namespaces, leaseDuration, registry, registries, hooks, service, drain"}},
		"an unknown nested field": {"its path is named", with("driver: memory", "driver: memory\n  tls: {clientFile: x}"),
			[]string{"registry.tls.clientFile", `(did you mean "certFile"?)`, "known here: caFile, certFile, keyFile"}},
		"unready for long":              {"dead pods would stay in rotation", with("", "unready: {after: 5m}"), []string{"unready.after", `"5m0s"`, "at most 1m"}},
		"unready as a number":           {"the unit is missing", with("", "unready: {after: 5}"), []string{"unready.after", "a duration with its unit"}},
		"a key with a dot":              {"no panic over a path that looks deeper", with("", `"drain.after": 5s`), []string{"drain.after", "unknown field; known here: apiVersion, kind, cluster"}},
		"another case":                  {"Cluster is not cluster", with("cluster:", "Cluster:"), []string{"Cluster", `did you mean "cluster"?`, "cluster: Required"}},
		"less than nothing":             {"there is no such share", with("", "panicThreshold: -1%"), []string{"panicThreshold", `from "0%" to "100%"`}},
		"more than all":                 {"there is no such share", with("", "panicThreshold: 101%"), []string{"panicThreshold", `from "0%" to "100%"`}},
		"a bare number":                 {"is it a share, or pods?", with("", "panicThreshold: 50"), []string{"panicThreshold", "50", `such as "50%"`}},
		"a part of a percent":           {"whole shares are fine enough", with("", "panicThreshold: 0.5%"), []string{"panicThreshold", `such as "50%"`}},
		"resync too often":              {"a list is not free", with("", "resync: {interval: 0s}"), []string{"resync.interval", `"1s" or more`}},
		"removals of text":              {"a percentage has its sign", with("", `resync: {maxRemovals: "20"}`), []string{"resync.maxRemovals", `"20"`, `"0%" to "100%"`}},
		"removals above all":            {"there are no more than all", with("", "resync: {maxRemovals: 101%}"), []string{"resync.maxRemovals", "101%"}},
		"removals below none":           {"nothing can be put back this way", with("", "resync: {maxRemovals: -1}"), []string{"resync.maxRemovals", "-1"}},
		"half a removal":                {"entries are counted", with("", "resync: {maxRemovals: 1.5}"), []string{"resync.maxRemovals", "1.5"}},
		"an eviction's limit":           {"it would be let through as it comes", with("", "evictions: {limit: 0s}"), []string{"evictions.limit", "1s"}},
		"a webhook's name":              {"it is a Service's", with("", "evictions: {name: A.b}"), []string{"evictions.name", "Service, Secret"}},
		"a field of an older version":   {"strangers find out what became of it", with("", "traces: {endpoint: 'http://collector:4318'}"), []string{"traces", "unknown"}},
		"resync as a list":              {"the kind is named", with("", "resync: []"), []string{"resync", "an array", "an object"}},
		"proceeding":                    {"a person must say after how long", with("", "proceedAfter: {preDelete: Proceed}"), []string{"proceedAfter.preDelete", `such as "1s"`}},
		"proceeding at 0s":              {"each deletion would lose requests", with("", "proceedAfter: {inPlaceUpdate: 0s}"), []string{"proceedAfter.inPlaceUpdate", `"1s" or more`}},
		"a failing preNormal":           {"no pod comes into rotation unacknowledged", with("", "proceedAfter: {preNormal: 10m}"), []string{"proceedAfter.preNormal", "unknown field", "preDelete, inPlaceUpdate"}},
		"a number for text":             {"the kind is named", with("prod-1", "1.10"), []string{"cluster", "a number", "in quotes"}},
		"an unquoted brace":             {"YAML takes it for an object", with("", "service: {name: {label:app}}"), []string{"service.name", "an object", "a string, in quotes"}},
		"no such address":               {"the known ones are listed", with("", "service: {address: podIP}"), []string{"service.address", `"podIP"`, "PodIP, HostIP, IPv4, IPv6 or network/NAME"}},
		"a nameless network":            {"there can be several", with("", "service: {address: network/}"), []string{"service.address", "network/NAME"}},
		"no range":                      {"one address is no range, and a host's part is likely a slip", with("", `service: {networkAddresses: [172.20.0.1, 172.20.0.1/16]}`), []string{"service.networkAddresses[0]", "service.networkAddresses[1]", "172.16.0.0/12"}},
		"no ranges":                     {"no pod could be at an address of a network", with("", `service: {networkAddresses: []}`), []string{"service.networkAddresses", "one range or more"}},
		"an author's address":           {"whoever writes pods would send clients anywhere", with("", `service: {metadata: {wan: "{label:wan}", hostName: "{pod}.example.com"}}`), []string{"service.metadata[wan]", "{label:KEY}", "domain"}},
		"an empty network":              {"it would be no network", with("", `service: {networks: [""]}`), []string{"service.networks[0]", "NAMESPACE/NAME"}},
		"text for a number":             {"the kind is named", with("", `service: {port: "80"}`), []string{"service.port", "a string", "whole number"}},
		"a broken number":               {"the kind is named", with("", `service: {port: 80.5}`), []string{"service.port", "whole number"}},
		"text for a list":               {"the kind is named", with("[example.com/*]", "example.com/*"), []string{"hooks.owned", "a string", "a list"}},
		"a list for an object":          {"the kind is named", with("", "service: []"), []string{"service", "an array", "an object"}},
		"text for a bool":               {"the kind is named", allowed(`[{namespaces: ["*"], names: ["*"], shared: "yes"}]`), []string{"service.allowed[0].shared", "true or false"}},
		"a long cluster":                {"the UID is 36 long", with("prod-1", `"a-name-of-28-characters-more-{uid}"`), []string{"cluster: Invalid", `"{uid}" counts as 36`}},
		"an odd cluster":                {"it must fit into any registry's mark", with("prod-1", `"a b"`), []string{"cluster: Invalid", "63 letters"}},
		"an odd namespace":              {"its index is named", with("", "namespaces: [ok, A]"), []string{"namespaces[1]", "name of a namespace"}},
		"an empty choice of namespaces": {"a typo could make it empty", with("", "namespaces: {}"), []string{"namespaces: Required", "matchLabels or matchExpressions", "leave namespaces out"}},
		"an odd label of namespaces":    {"it matches nothing", with("", "namespaces: {matchLabels: {team: a b}}"), []string{"namespaces.matchLabels", "a b"}},
		"an odd operator of namespaces": {"the field is named", with("", "namespaces: {matchExpressions: [{key: team, operator: Is, values: [a]}]}"), []string{"namespaces.matchExpressions[0].operator", "Is"}},
		"a selector with a typo":        {"what is meant is named", with("", "namespaces: {matchLabel: {team: a}}"), []string{"namespaces.matchLabel", "matchLabels"}},
		"a namespace twice":             {"its index is named", with("", "namespaces: [a, b, a]"), []string{"namespaces[2]: Duplicate"}},
		"no driver":                     {"the known ones are listed", with("driver: memory", `driver: ""`), []string{"registry.driver: Required", "http, memory"}},
		"an unknown driver":             {"the known ones are listed", with("driver: memory", "driver: consol"), []string{"registry.driver", `"consol"`, `"http", "memory"`}},
		"a timeout too long":            {"a deposed leader's call could still be under way", with("driver: memory", "driver: memory\n  timeout: 7s"), []string{"registry.timeout", `"7s"`, "less than 6.3s", "twice the timeout"}},
		"a lease too short":             {"the API server's slow minute would depose each leader", with("", "leaseDuration: 14s"), []string{"leaseDuration", `"14s"`, "from 15s to 1m0s"}},
		"a lease too long":              {"entries would end before another manager leads", with("", "leaseDuration: 61s"), []string{"leaseDuration", "from 15s to 1m0s"}},
		"a part of a second":            {"the Lease has whole seconds", with("", "leaseDuration: 15500ms"), []string{"leaseDuration", "whole seconds"}},
		"a timeout for another lease":   {"both are checked together", with("driver: memory", "driver: memory\n  timeout: 12600ms") + "leaseDuration: 30s\n", []string{"registry.timeout", "less than 12.6s"}},
		"a zero timeout":                {"no call would ever succeed", with("driver: memory", "driver: memory\n  timeout: 0s"), []string{"registry.timeout", `"1ms" or more`}},
		"too few calls":                 {"one service would hold up all others", with("driver: memory", "driver: memory\n  maxInFlight: 1"), []string{"registry.maxInFlight", "2 or more"}},
		"too many calls":                {"a slow registry would hold all workers", with("driver: memory", "driver: memory\n  maxInFlight: 385"), []string{"registry.maxInFlight", "at most 384"}},
		"too many of three":             {"two slow ones would hold all workers", several("[{name: a, default: true, driver: memory}, {name: b, driver: memory, maxInFlight: 193}, {name: c, driver: http}]"), []string{"registries[b].maxInFlight", "at most 192"}},
		"another writer":                {"the known ones are listed", with("driver: memory", "driver: memory\n  registeredBy: app"), []string{"registry.registeredBy: Unsupported", `"Rollcall", "App"`}},
		"a timeout of text":             {"the form is shown", with("driver: memory", "driver: memory\n  timeout: soon"), []string{"registry.timeout", `"5s"`}},
		"a number for a cluster":        {"it is not missing", with("prod-1", "5"), []string{"cluster: Invalid", "a number"}},
		"removals below zero":           {"nothing is less than none", with("", "resync: {maxRemovals: -5%}"), []string{"resync.maxRemovals", "from \"0%\""}},
		"too many removals":             {"it is no number of entries", with("", "resync: {maxRemovals: 3000000000}"), []string{"resync.maxRemovals"}},
		"options of text":               {"the driver decodes an object", with("driver: memory", "driver: memory\n  options: x"), []string{"registry.options", "an object"}},
		"drain below zero":              {"no time runs backwards", with("", "drain: -1s"), []string{"drain", `"-1s"`, `"0s" or more`}},
		"a lag below zero":              {"no time runs backwards", with("driver: memory", "driver: memory\n  readerLag: -1s"), []string{"registry.readerLag", `"0s" or more`}},
		"warm-up of nothing":            {"an instance without a weight has no part of one", with("", "warmUp: 2m"), []string{"warmUp", "service.metadata.weight", `"100"`}},
		"warm-up below zero":            {"no time runs backwards", with("", "warmUp: -1s"), []string{"warmUp.duration", `"-1s"`}},
		"warm-up as a number":           {"the form is shown", with("", "warmUp: 15"), []string{"warmUp", "a number", "an object with the fields duration, countsAs"}},
		"warm-up that counts":           {"the words are listed", with("", "warmUp: {duration: 2m, countsAs: Middle}"), []string{"warmUp.countsAs", `"Start", "End"`}},
		"drain as a number":             {"seconds or minutes?", with("", "drain: 15"), []string{"drain", "15", `such as "15s"`}},
		"drain as a list":               {"the form is shown", with("", "drain: [15s]"), []string{"drain", `such as "15s"`}},
		"owned has a blank":             {"an empty key is no key", with("[example.com/*]", `[""]`), []string{"hooks.owned[0]", "example.com/registered"}},
		"owned claims all":              {"others' finalizers would be removed", with("[example.com/*]", `["*"]`), []string{"hooks.owned[0]", `"example.com/*"`}},
		"owned has no slash":            {"a part of a domain is no domain", with("[example.com/*]", `["example*"]`), []string{"hooks.owned[0]", `"example.com/*"`}},
		"owned is partial":              {"only a whole domain can be claimed", with("[example.com/*]", `["example.com/a-*"]`), []string{"hooks.owned[0]", `"example.com/*"`}},
		"owned is Kruise's":             {"Kruise would hang or lose pods", with("example.com/*", "lifecycle.apps.kruise.io/*"), []string{"hooks.owned[0]", "belongs to"}},
		"owned is k8s's":                {"a Job's finalizer would be removed", with("example.com/*", "batch.kubernetes.io/*"), []string{"hooks.owned[0]", "belongs to"}},
		"owned is Rollcall's":           {"it is so in every configuration", with("example.com/*", "rollcall.dev/*"), []string{"hooks.owned[0]", "leave it out"}},
		"owned twice":                   {"one is a mistake", with("[example.com/*]", "[a.io/b, a.io/b]"), []string{"hooks.owned[1]: Duplicate"}},
		"newlyCreated wild":             {"a mark is one key", with("owned: ", "newlyCreated: [a.io/*]\n  owned: "), []string{"hooks.newlyCreated[0]", "example.com/registered"}},
		"newlyCreated ours":             {"every enrolled workload's handler would be refused", with("owned: ", "newlyCreated: [rollcall.dev/pre-normal]\n  owned: "), []string{"hooks.newlyCreated[0]", "Rollcall's own"}},
		"newlyCreated Kruise's":         {"Rollcall would clear another controller's label", with("owned: ", "newlyCreated: [a.io/new, lifecycle.apps.kruise.io/state]\n  owned: "), []string{"hooks.newlyCreated[1]", "OpenKruise"}},
		"newlyCreated Kubernetes'":      {"the same", with("owned: ", "newlyCreated: [kubernetes.io/metadata.name]\n  owned: "), []string{"hooks.newlyCreated[0]", "Kubernetes"}},
		"newlyCreated owned":            {"a key is a handler or a mark", with("owned: [", "newlyCreated: [a.io/gate]\n  owned: [a.io/gate, "), []string{"hooks.newlyCreated[0]", "in hooks.owned too"}},
		"a template's typo":             {"the placeholders are listed", with("", `service: {name: "{app}"}`), []string{"service.name", "{label:KEY}"}},
		"a tag's typo":                  {"the placeholders are listed", with("", `service: {tags: ["{app}"]}`), []string{"service.tags[0]", "{zone}, {region}, {pod}", "{subdomain}, {label:KEY}"}},
		"an empty tag":                  {"it says nothing", with("", `service: {tags: [a, ""]}`), []string{"service.tags[1]", "remove the entry"}},
		"a number as a tag":             {"1.10 would become 1.1", with("", `service: {tags: [1.10]}`), []string{"service.tags[0]", "a number", "a string, in quotes"}},
		"metadata's typo":               {"the placeholders are listed", with("", `service: {metadata: {a: "{app}"}}`), []string{"service.metadata[a]", "{zone}, {region}, {pod}", "{subdomain}, {label:KEY}"}},
		"metadata's key":                {"no reader could take it", with("", `service: {metadata: {"a b": x}}`), []string{"service.metadata[a b]", "letters, digits"}},
		"reserved metadata":             {"the mark is not the user's", with("", `service: {metadata: {rollcall-uid: x, weight: heavy}}`), []string{"service.metadata[rollcall-uid]", "service.metadata[weight]", "from 1 to 10000"}},
		"a number in metadata":          {"1.10 would become 1.1", with("", `service: {metadata: {version: 1.10}}`), []string{"service.metadata[version]", "a number", "a string, in quotes"}},
		"no value in metadata":          {"a key alone says nothing", with("", `service: {metadata: {version: null}}`), []string{"service.metadata[version]", "remove the key"}},
		"metadata as a list":            {"the kind is named", with("", `service: {metadata: [a]}`), []string{"service.metadata", "an array", "an object"}},
		"port zero":                     {"zero is no port", with("", "service: {port: 0}"), []string{"service.port", "1 to 65535"}},
		"port too high":                 {"65536 is no port", with("", "service: {port: 65536}"), []string{"service.port", "1 to 65535"}},
		"nothing is allowed":            {"every pod would wait", allowed("[]"), []string{"service.allowed: Required", "remove the field"}},
		"allowed as an object":          {"the kind is named", allowed("{names: [web]}"), []string{"service.allowed", "an object", "a list"}},
		"allowed to whom":               {"an empty entry must not mean all", allowed("[{names: [web]}]"), []string{"service.allowed[0].namespaces: Required", `"*"`, "namespaceSelector"}},
		"allowed what":                  {"an empty entry must not mean all", allowed(`[{namespaces: ["*"]}]`), []string{"service.allowed[0].names: Required", `"{namespace}.*"`}},
		"allowed with a typo":           {"its index is named", allowed("[{namespaces: [a], names: [b]}, {namespace: [a], names: [b]}]"), []string{"service.allowed[1].namespace", `did you mean "namespaces"?`, "known here: namespaces, namespaceSelector, names, shared"}},
		"an odd pattern":                {"its index is named", allowed(`[{namespaces: [a, "B*"], names: [b]}]`), []string{"service.allowed[0].namespaces[1]", `"B*"`, `"team-*"`}},
		"a name's placeholder":          {"the namespace is all that is known", allowed(`[{namespaces: [a], names: ["{label:app}"]}]`), []string{"service.allowed[0].names[0]", "{namespace}"}},
		"names of text":                 {"the kind is named", allowed(`[{namespaces: [a], names: web}]`), []string{"service.allowed[0].names", "a string", "a list"}},
		"an empty selector":             {"a typo could make it empty", allowed(`[{namespaceSelector: {}, names: [web]}]`), []string{"service.allowed[0].namespaceSelector: Required", `namespaces: ["*"]`}},
		"a selector's typo":             {"a typo must not be ignored", allowed(`[{namespaceSelector: {labels: {a: b}}, names: [web]}]`), []string{"service.allowed[0].namespaceSelector.labels", "known here: matchLabels, matchExpressions"}},
		"an expression's typo":          {"its index is named", allowed(`[{namespaceSelector: {matchExpressions: [{key: a, op: In}]}, names: [web]}]`), []string{"service.allowed[0].namespaceSelector.matchExpressions[0].op", "known here: key, operator, values"}},
		"an odd operator":               {"the field is named", allowed(`[{namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}, names: [web]}]`), []string{"service.allowed[0].namespaceSelector.matchExpressions[0].operator", `"Is"`}},
		"drain without max":             {"no pod may stay forever", with("", "drain: {until: {path: /idle, port: 8080}}"), []string{"drain.max: Required", `such as "10m"`}},
		"drain with a wrong port":       {"the field is shown", with("", "drain: {max: 10m, until: {path: /idle, port: 0}}"), []string{"drain.until.port: Invalid value: 0"}},
		"drain with a wrong field":      {"the nearest is shown", with("", "drain: {max: 10m, unil: {path: /idle, port: 80}}"), []string{"drain.unil", `did you mean "until"?`}},
		"both forms": {"which of them holds?", with("", "registries: [{name: old, driver: memory}]"),
			[]string{"registries: Forbidden", "exclude each other", "name: default", "remove registry"}},
		"neither form":           {"the simpler one is shown", "cluster: a\nhooks: {owned: [a.io/b]}", []string{"registry.driver: Required", "http, memory"}},
		"no registries":          {"a pod would be in none", several("[]"), []string{"registries: Required", "at least one"}},
		"registries by name":     {"a list has an order, and each entry its name in it", several("{old: {driver: memory}}"), []string{"registries", "an object", "use a list"}},
		"a registry of text":     {"its index is all that is known of it", several("[old]"), []string{"registries[0]", "an object with the fields name, default, driver, endpoint"}},
		"no name":                {"an annotation has it", several("[{driver: memory}]"), []string{"registries[0].name: Required", "such as main"}},
		"an odd name":            {"an annotation has it", several("[{name: Old_1, driver: memory}]"), []string{"registries[0].name: Invalid", `"Old_1"`, "lower-case"}},
		"a name with a comma":    {"the annotation has it between names", several(`[{name: "a,b", driver: memory}]`), []string{"registries[0].name: Invalid"}},
		"a name with a dot":      {"no panic over a path that looks deeper", several(`[{name: a.driver, foo: 1}]`), []string{"registries[0].name: Invalid", "registries[0].foo", "unknown field"}},
		"a name twice":           {"pods could not choose, and the path of the second is its own", several("[{name: a, default: true, driver: memory}, {name: a, driver: memory, foo: 1}]"), []string{"registries[1].name: Duplicate", "registries[1].foo"}},
		"a number for a name":    {"the kind is named", several("[{name: 1, driver: memory}]"), []string{"registries[0].name", "a number", "in quotes"}},
		"an empty section":       {"every registry is checked", several("[{name: old, default: true, driver: memory}, null]"), []string{"registries[1].name: Required", "registries[1].driver: Required"}},
		"a name for registry":    {"there is nothing to choose", with("driver: memory", "driver: memory\n  name: main"), []string{"registry.name", "unknown field"}},
		"a default for registry": {"there is nothing to choose", with("driver: memory", "driver: memory\n  default: true"), []string{"registry.default", "unknown field"}},
		"an unknown field of one": {"its path has the name", several("[{name: old, driver: memory, tls: {file: x}}]"),
			[]string{"registries[old].tls.file", "known here: caFile, certFile, keyFile"}},
		"a wrong kind in one": {"its path has the name", several("[{name: old, driver: memory, tls: {caFile: 1}}]"),
			[]string{"registries[old].tls.caFile", "a number", "in quotes"}},
		"several wrong in several": {"one look must be enough", several("[{name: old, driver: consol, default: true}, {name: new, driver: http, timeout: 8s, options: []}]"),
			[]string{"registries[old].driver: Unsupported", "registries[new].timeout", "less than 6.3s", "registries[new].options"}},
		"one server twice": {"who leaves one name would be removed under the other",
			several("[{name: old, default: true, driver: http, endpoint: 'http://r.example.com'}, {name: new, driver: http, endpoint: 'HTTP://R.Example.com:80/'}]"),
			[]string{"registries[old].endpoint: Invalid", "registries[new] is the same server", "remove one of the two"}},
		"one server twice, with options": {"an object has no order, and an empty one says nothing",
			several("[{name: a, default: true, driver: http, endpoint: 'http://a', options: {x: 1, y: {}}}, {name: b, driver: http, endpoint: 'http://a', options: {y: {}, x: 1}}, " +
				"{name: c, driver: http, endpoint: 'http://c', options: {}}, {name: d, driver: http, endpoint: 'http://c'}]"),
			[]string{"registries[b].endpoint: Invalid", "registries[a] is the same server", "registries[d].endpoint: Invalid"}},
		"no default of two": {"which of them did you mean?", several("[{name: old, driver: memory}, {name: new, driver: memory}]"),
			[]string{"registries: Required", "set default: true in one or more"}},
		"a default for nobody": {"it must say for whom", several("[{name: a, driver: memory, default: {}}]"),
			[]string{"registries[a].default.namespaces: Required", "choose namespaces by their names"}},
		"a default of text": {"the kind is named", several("[{name: old, default: 'yes', driver: memory}]"), []string{"registries[old].default", "a string", "true or false, or an object"}},
		"several at once":   {"one look must be enough", with("prod-1", `""`) + "drain: -1s\nfoo: 1\n", []string{"cluster: Required", "drain", "foo"}},
	}, func(t *testing.T, tc row) {
		c, err := Parse([]byte(tc.file), limits())
		if err == nil {
			t.Fatalf("%s: accepted as %+v", tc.reason, c)
		}
		if c != nil {
			t.Errorf("%s: a configuration came with the error", tc.reason)
		}
		t.Log(err)
		for _, part := range tc.want {
			expect.Error(t, tc.reason, err, part)
		}
		said := map[string]bool{}
		for _, one := range Joined(err) {
			path, _, _ := strings.Cut(one.Error(), ": ")
			if said[path] {
				t.Errorf("%s: %s is refused twice", tc.reason, path)
			}
			said[path] = true
		}
	})
}

func TestNoRegistriesAreOneError(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("cluster: a\nhooks: {owned: [a.io/b]}\nregistries: []\n"), limits())
	if err == nil || strings.Contains(err.Error(), "default: true") {
		t.Errorf("got error %v, want one that asks for no default of none", err)
	}
}

// TestOtherFormIsOneError: fields of a later version are no typos.
func TestOtherFormIsOneError(t *testing.T) {
	t.Parallel()
	for _, l := range []Limits{limits(), {Refused: func(error) { t.Error("it is read all the same") }}} {
		for _, other := range []string{"apiVersion: rollcall.dev/v2", "kind: ConfigMap"} {
			_, err := Parse([]byte(minimal+other+"\ndrian: 5s\n"), l)
			if err == nil || strings.Contains(err.Error(), "drian") {
				t.Errorf("got error %v, want one about %s alone", err, other)
			}
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := Load(path, limits())
	expect.Error(t, "the path is named", err, "reading the configuration: open "+path)
	expect.NoError(t, os.WriteFile(path, []byte("drain: soon"), 0o600))
	_, err = Load(path, limits())
	expect.Error(t, "the path is named", err, path+": [cluster: Required")
}

// TestRegistryErrors: each that a driver joins is shown once, with the path of its section.
func TestRegistryErrors(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(minimal), limits())
	expect.NoError(t, err)
	badPort, badHost := registry.FieldError("options.port", errors.New("set a port")), errors.New("no host")
	for reason, tc := range map[string]struct {
		err  error
		want []string
	}{
		"a driver that is content":         {nil, nil},
		"one with a field":                 {badPort, []string{"registry.options.port: Invalid value: set a port"}},
		"several, one of them twice":       {errors.Join(badHost, errors.Join(badPort, badHost)), []string{"registry: Invalid value: no host", "registry.options.port: Invalid value: set a port"}},
		"several with a text of their own": {fmt.Errorf("both %w and %w", badHost, errors.New("no path")), []string{"registry: Invalid value: both no host and no path"}},
	} {
		var got []string
		for _, one := range c.RegistryErrors(DefaultRegistry, tc.err) {
			got = append(got, one.Error())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", reason, diff)
		}
	}
}

// TestParseOfWhatIsRefused: who only looks goes on with what can be read, where that says which hooks are Rollcall's.
func TestParseOfWhatIsRefused(t *testing.T) {
	t.Parallel()
	var refused error
	l := Limits{Refused: func(err error) { refused = err }}
	for text, want := range map[string]struct {
		refused string
		shop    bool // is watched
		drain   time.Duration
	}{
		"drain: soon\nnamespaces: [pay]":            {refused: `drain: Invalid value: "soon"`, drain: -1},
		"drain: -5s\nnamespaces: [pay]":             {refused: `drain: Invalid value: "-5s"`, drain: -1},
		"drain: 20s\nnamespaces: [Pay]":             {refused: `namespaces[0]: Invalid value: "Pay"`, shop: true, drain: 20 * time.Second},
		"drain: 20s\ndrains: 5s\nnamespaces: [pay]": {refused: `drains: Invalid value: unknown field`, drain: 20 * time.Second},
		"drain: 20s\nnamespaces: {pay: 1}":          {refused: `namespaces.pay: Invalid value: unknown field`, shop: true, drain: 20 * time.Second},
	} {
		c, err := Parse([]byte("cluster: c\nhooks: {owned: [example.com/*]}\n"+text), l)
		expect.NoError(t, err)
		if !c.Hooks.Owns("example.com/in") || c.MayWatch("shop") != want.shop || c.Drain.Max != want.drain {
			t.Errorf("%s: it reads %+v", text, c)
		}
		expect.Error(t, "it says what is wrong", refused, want.refused)
	}
	c, err := Parse([]byte("cluster: c\n"), l)
	expect.NoError(t, err)
	if !c.Hooks.Owns("rollcall.dev/pre-delete") || c.Hooks.Owns("example.com/in") {
		t.Errorf("without hooks it reads %+v", c.Hooks)
	}
	l.Unknown = func(path string) { t.Errorf("%s is unknown, and the rest counts", path) }
	for text, want := range map[string]string{
		"hooks: {owned: [example.com/*, a b]}":    `hooks.owned[1]: Invalid value: "a b"`,
		"hooks: {owned: [example.com/*], own: 1}": "hooks.own: Invalid value: unknown field",
		"hooks: [example.com/*]":                  "hooks: Invalid value: this is an array",
		"hooks: {owned: ":                         "use valid YAML",
	} {
		_, err := Parse([]byte("cluster: c\n"+text), l)
		expect.Error(t, "it is not known which hooks are Rollcall's", err, want)
	}
	_, err = Parse([]byte("- cluster"), l)
	expect.Error(t, "nothing can be read", err, "this is an array")
}

// TestParseOfUnknownFields: a plugin that is older than the manager goes on with what it knows, and all else is checked.
func TestParseOfUnknownFields(t *testing.T) {
	t.Parallel()
	var unknown []string
	l := limits()
	l.Unknown = func(path string) { unknown = append(unknown, path) }
	c, err := Parse([]byte(minimal+"drian: 5s\nresync: {interval: 5m, jitter: 5s}"), l)
	expect.NoError(t, err)
	if c.Resync.Interval != 5*time.Minute || !slices.Equal(unknown, []string{"resync.jitter", "drian"}) {
		t.Errorf("resync is read as %v, and %v as unknown", c.Resync, unknown)
	}
	_, err = Parse([]byte(minimal+"drain: soon"), l)
	expect.Error(t, "the value of a known field counts", err, "drain")
}

func TestMaxInFlightByDefault(t *testing.T) {
	t.Parallel()
	for registries, want := range map[int]int{
		1: 384, 2: 384, // one that hangs leaves a quarter of the workers to the other
		3: 192, 10: 42, 193: leastInFlight,
	} {
		c, err := Parse([]byte(registriesOf(registries)), Limits{})
		expect.NoError(t, err)
		for name, r := range c.Registries {
			if r.MaxInFlight != want {
				t.Errorf("%s of %d has %d calls, want %d", name, registries, r.MaxInFlight, want)
			}
			if held := (registries - 1) * r.MaxInFlight; 4*held > 3*Workers {
				t.Errorf("of %d registries all but one can hold %d of %d workers", registries, held, Workers)
			}
		}
	}
	_, err := Parse([]byte(registriesOf(194)), Limits{})
	expect.Error(t, "each needs a call for another service", err, "194 registries are too many, since registries that hang must leave workers for the others: set at most 193")
}

// registriesOf is a configuration with so many registries.
func registriesOf(n int) string {
	text := &strings.Builder{}
	text.WriteString("cluster: prod-1\nhooks: {owned: [example.com/*]}\nregistries:\n")
	for i := range n {
		_, _ = fmt.Fprintf(text, "- {name: r%d, driver: memory, default: %t}\n", i, i == 0)
	}
	return text.String()
}

func TestCheckReload(t *testing.T) {
	t.Parallel()
	before := &Config{Cluster: "prod-1", Namespaces: service.Namespaces{Names: []string{"api", "web"}}}
	expect.NoError(t, CheckReload(before, &Config{Cluster: "prod-1", Namespaces: service.Namespaces{Names: []string{"api", "web"}}, Drain: drain.Fixed(1)}))
	expect.Error(t, "calls rely on it", CheckReload(before, &Config{Cluster: "prod-1", Namespaces: before.Namespaces, Lease: LongestLease}),
		"leaseDuration: Invalid value: \"1m0s\": can't change while the manager runs")
	err := CheckReload(before, &Config{Cluster: "prod-2"})
	for _, part := range []string{`cluster: Invalid value: "prod-2"`, `set "prod-1", or restart`, "namespaces: Invalid value", "restart it"} {
		expect.Error(t, "what can't change is named", err, part)
	}
	byLabel := func(team string) *Config {
		return &Config{Cluster: "prod-1", Namespaces: service.Namespaces{Selector: labels.SelectorFromSet(labels.Set{"team": team})}}
	}
	expect.NoError(t, CheckReload(byLabel("a"), byLabel("a")))
	expect.Error(t, "the caches are filled for it", CheckReload(byLabel("a"), byLabel("b")), `namespaces: Invalid value: "team=b"`)
	for i := range reflect.TypeFor[Features]().NumField() {
		next := *before
		switch field := reflect.ValueOf(&next.Features).Elem().Field(i); field.Kind() {
		case reflect.Bool:
			field.SetBool(true)
		case reflect.String:
			field.SetString("x")
		default:
			field.Field(0).Set(map[reflect.Kind]reflect.Value{reflect.Bool: reflect.ValueOf(true), reflect.String: reflect.ValueOf("x")}[field.Field(0).Kind()])
		}
		name := reflect.TypeFor[Features]().Field(i).Name
		expect.Error(t, "it was made at the start", CheckReload(before, &next), strings.ToLower(name[:1])+name[1:]+": Invalid value: can't change")
	}
}

func TestWarmUp(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, text string
		want         time.Duration
		atEnd        bool
	}
	expect.Each(t, map[string]row{
		"nothing":    {"it is off by default", "", 0, false},
		"off":        {"no weight is needed", "warmUp: 0s", 0, false},
		"short":      {"most need no more", "warmUp: 2m", 2 * time.Minute, false},
		"an object":  {"as it is shown when all defaults are", "warmUp: {duration: 2m}", 2 * time.Minute, false},
		"at the end": {"OpenKruise can wait", "warmUp: {duration: 90s, countsAs: End}", 90 * time.Second, true},
	}, func(t *testing.T, tc row) {
		text := "cluster: prod-1\nregistry: {driver: memory}\n" + tc.text + "\n"
		if tc.want > 0 {
			text += "service: {metadata: {weight: \"100\"}}\n"
		}
		c, err := Parse([]byte(text), Limits{})
		expect.NoError(t, err)
		if c.Service.WarmUp != tc.want || c.Service.CountsAtEnd != tc.atEnd {
			t.Errorf("got %s, at its end %t\nreason: %s", c.Service.WarmUp, c.Service.CountsAtEnd, tc.reason)
		}
		effective, err := c.Effective()
		expect.NoError(t, err)
		again, err := Parse(effective, Limits{})
		if err != nil || again.Service.WarmUp != tc.want || again.Service.CountsAtEnd != tc.atEnd {
			t.Errorf("what is in force is not the same again: %v\n%s", err, effective)
		}
	})
}

// TestDrainUntilIdle: the effective configuration has it with its defaults, and is the same.
func TestDrainUntilIdle(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(minimal+"drain: {max: 10m, until: {metric: in_flight, port: 9090, labels: {kind: http}}}\n"), limits())
	expect.NoError(t, err)
	want := drain.Policy{Min: drain.Default, Max: 10 * time.Minute, Until: drain.Until{
		Port: 9090, Path: "/metrics", Metric: "in_flight", Labels: map[string]string{"kind": "http"},
	}}
	if diff := cmp.Diff(want, c.Drain); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if text := expectEffective(t, c); !strings.Contains(text, "min: 15s") {
		t.Errorf("the default of min is missing:\n%s", text)
	}
}
