package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

const minimal = `
cluster: prod-1
registry:
  driver: memory
hooks:
  owned: [example.com/*]
`

func limits() Limits {
	return Limits{Drivers: []string{"memory", "http"}, Timeout: 7 * time.Second}
}

func template(t *testing.T, text string) service.NameTemplate {
	t.Helper()
	parsed, err := service.ParseNameTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte(minimal), limits())
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Cluster:  "prod-1",
		Registry: Registry{Driver: "memory", Timeout: 5 * time.Second},
		Hooks:    Hooks{Owned: []string{"example.com/*"}},
		Service:  Service{Name: template(t, "{label:app}")},
		Drain:    15 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEveryField(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(`---
cluster: prod-1
namespaces: [web, api]
registry:
  driver: http
  endpoint: https://registry.example.com
  tls: {caFile: /etc/rollcall/tls/ca.crt}
  auth: {tokenFile: /etc/rollcall/auth/token}
  timeout: 1500ms
  options: {datacenter: dc1, weight: 10000000000}
hooks:
  owned: [example.com/*, example.io/unready-blocker, bare]
  newlyCreated: [example.com/newly-create, example.io/initialing]
service:
  name: "{namespace}-{label:app}"
  port: 8080
  sharedAcrossNamespaces: true
drain: 0s
`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path, limits())
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Cluster:    "prod-1",
		Namespaces: []string{"api", "web"},
		Registry: Registry{
			Driver: "http", Endpoint: "https://registry.example.com", CAFile: "/etc/rollcall/tls/ca.crt",
			TokenFile: "/etc/rollcall/auth/token", Timeout: 1500 * time.Millisecond,
			Options: json.RawMessage(`{"datacenter":"dc1","weight":10000000000}`),
		},
		Hooks: Hooks{
			Owned:        []string{"example.com/*", "example.io/unready-blocker", "bare"},
			NewlyCreated: []string{"example.com/newly-create", "example.io/initialing"},
		},
		Service: Service{Name: template(t, "{namespace}-{label:app}"), Port: 8080, SharedAcrossNamespaces: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	wantDriver := registry.Config{
		Cluster: "prod-1", Endpoint: "https://registry.example.com",
		TLS: registry.TLS{CAFile: "/etc/rollcall/tls/ca.crt"}, Auth: registry.Auth{TokenFile: "/etc/rollcall/auth/token"},
		Timeout: 1500 * time.Millisecond, Options: json.RawMessage(`{"datacenter":"dc1","weight":10000000000}`),
	}
	if diff := cmp.Diff(wantDriver, got.Driver()); diff != "" {
		t.Errorf("what the driver gets (-want +got)\n%s", diff)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	// with replaces a line of the minimal configuration, or adds one where old is empty.
	with := func(old, now string) string {
		if old == "" {
			return minimal + now + "\n"
		}
		return strings.Replace(minimal, old, now, 1)
	}
	tests := map[string]struct {
		reason string
		file   string
		want   []string
	}{
		"an empty file": {"every required field is named at once", "",
			[]string{"cluster: Required", "registry.driver: Required", "http, memory", "hooks.owned: Required", "example.com/*"}},
		"only a comment": {"it is an empty file too", "# nothing\n", []string{"cluster: Required"}},
		"no YAML":        {"the line is named", "cluster: [", []string{"(file)", "write valid YAML", "line 1"}},
		"a list":         {"the file must be an object", "- cluster", []string{"(file)", "write an object with the fields cluster, namespaces"}},
		"two documents":  {"the second would be ignored", minimal + "---\ncluster: b\n", []string{"(file)", "second document"}},
		"a key twice":    {"one of them is a mistake", with("", "cluster: prod-2"), []string{`"cluster" already set`}},
		"an unknown field": {"a typo must not be ignored", with("", "drian: 5s"),
			[]string{"drian", "unknown field", "known here: cluster, namespaces, registry, hooks, service, drain"}},
		"an unknown nested field": {"its path is named", with("driver: memory", "driver: memory\n  tls: {certFile: x}"),
			[]string{"registry.tls.certFile", "unknown field", "known here: caFile"}},
		"another case":         {"Cluster is not cluster", with("cluster:", "Cluster:"), []string{"Cluster", "unknown field", "cluster: Required"}},
		"unready":              {"no field before something implements it", with("", "unready: Keep"), []string{"unready", "unknown field"}},
		"resync":               {"no field before something implements it", with("", "resync: {interval: 1m}"), []string{"resync", "unknown field"}},
		"onRegistryFailure":    {"no field before something implements it", with("", "onRegistryFailure: {after: 1m}"), []string{"onRegistryFailure", "unknown field"}},
		"registries":           {"no field before something implements it", with("", "registries: {}"), []string{"registries", "unknown field"}},
		"a number for text":    {"the kind is named", with("prod-1", "1.10"), []string{"cluster", "a number", "in quotes"}},
		"an unquoted brace":    {"YAML takes it for an object", with("", "service: {name: {label:app}}"), []string{"service.name", "an object", "a string, in quotes"}},
		"text for a number":    {"the kind is named", with("", `service: {port: "80"}`), []string{"service.port", "a string", "whole number"}},
		"a broken number":      {"the kind is named", with("", `service: {port: 80.5}`), []string{"service.port", "whole number"}},
		"text for a list":      {"the kind is named", with("[example.com/*]", "example.com/*"), []string{"hooks.owned", "a string", "a list"}},
		"a list for an object": {"the kind is named", with("", "service: []"), []string{"service", "an array", "an object"}},
		"text for a bool":      {"the kind is named", with("", `service: {sharedAcrossNamespaces: "yes"}`), []string{"sharedAcrossNamespaces", "true or false"}},
		"an odd cluster":       {"it must fit into any registry's mark", with("prod-1", `"a b"`), []string{"cluster: Invalid", "63 letters"}},
		"an odd namespace":     {"its index is named", with("", "namespaces: [ok, A]"), []string{"namespaces[1]", "name of a namespace"}},
		"a namespace twice":    {"its index is named", with("", "namespaces: [a, b, a]"), []string{"namespaces[2]: Duplicate"}},
		"no driver":            {"the known ones are listed", with("driver: memory", `driver: ""`), []string{"registry.driver: Required", "http, memory"}},
		"an unknown driver":    {"the known ones are listed", with("driver: memory", "driver: consol"), []string{"registry.driver", `"consol"`, `"http", "memory"`}},
		"a timeout too long":   {"a deposed leader's call could still be under way", with("driver: memory", "driver: memory\n  timeout: 7s"), []string{"registry.timeout", `"7s"`, "less than 7s"}},
		"a zero timeout":       {"no call would ever succeed", with("driver: memory", "driver: memory\n  timeout: 0s"), []string{"registry.timeout", `"1ms" or more`}},
		"a timeout of text":    {"the form is shown", with("driver: memory", "driver: memory\n  timeout: soon"), []string{"registry.timeout", `"5s"`}},
		"options of text":      {"the driver decodes an object", with("driver: memory", "driver: memory\n  options: x"), []string{"registry.options", "an object"}},
		"drain below zero":     {"no time runs backwards", with("", "drain: -1s"), []string{"drain", `"-1s"`, `"0s" or more`}},
		"drain as a number":    {"seconds or minutes?", with("", "drain: 15"), []string{"drain", "15", `such as "15s"`}},
		"drain as a list":      {"the form is shown", with("", "drain: [15s]"), []string{"drain", `such as "15s"`}},
		"owned is empty":       {"nothing would ever be managed", with("[example.com/*]", "[]"), []string{"hooks.owned: Required"}},
		"owned has a blank":    {"an empty key is no key", with("[example.com/*]", `[""]`), []string{"hooks.owned[0]", "example.com/registered"}},
		"owned claims all":     {"others' finalizers would be removed", with("[example.com/*]", `["*"]`), []string{"hooks.owned[0]", `"example.com/*"`}},
		"owned has no slash":   {"a part of a domain is no domain", with("[example.com/*]", `["example*"]`), []string{"hooks.owned[0]", `"example.com/*"`}},
		"owned is partial":     {"only a whole domain can be claimed", with("[example.com/*]", `["example.com/a-*"]`), []string{"hooks.owned[0]", `"example.com/*"`}},
		"owned is Kruise's":    {"Kruise would hang or lose pods", with("example.com/*", "lifecycle.apps.kruise.io/*"), []string{"hooks.owned[0]", "belongs to"}},
		"owned is k8s's":       {"a Job's finalizer would be removed", with("example.com/*", "batch.kubernetes.io/*"), []string{"hooks.owned[0]", "belongs to"}},
		"owned twice":          {"one is a mistake", with("[example.com/*]", "[a.io/b, a.io/b]"), []string{"hooks.owned[1]: Duplicate"}},
		"newlyCreated wild":    {"a mark is one key", with("owned: ", "newlyCreated: [a.io/*]\n  owned: "), []string{"hooks.newlyCreated[0]", "example.com/registered"}},
		"a template's typo":    {"the placeholders are listed", with("", `service: {name: "{app}"}`), []string{"service.name", "{label:KEY}"}},
		"port zero":            {"zero is no port", with("", "service: {port: 0}"), []string{"service.port", "1 to 65535"}},
		"port too high":        {"65536 is no port", with("", "service: {port: 65536}"), []string{"service.port", "1 to 65535"}},
		"several at once":      {"one look must be enough", with("prod-1", `""`) + "drain: -1s\nfoo: 1\n", []string{"cluster: Required", "drain", "foo"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse([]byte(tc.file), limits())
			if err == nil {
				t.Fatalf("%s: accepted as %+v", tc.reason, c)
			}
			if c != nil {
				t.Errorf("%s: a configuration came with the error", tc.reason)
			}
			t.Log(err)
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: error %q does not say %q", tc.reason, err, part)
				}
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Load(path, limits()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error with the path", err)
	}
}
