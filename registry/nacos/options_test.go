package nacos_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/nacos"
)

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	password := writeFile(t, "password", "secret\n")
	empty := writeFile(t, "empty", "\n")
	options := func(text string) registry.Config {
		return registry.Config{Endpoint: "http://nacos:8848", Options: []byte(text)}
	}
	for name, tc := range map[string]struct {
		reason string
		cfg    registry.Config
		field  string // "" for none
	}{
		"no endpoint":     {"there is no default", registry.Config{}, "endpoint"},
		"host and port":   {"the scheme says whether there is TLS", registry.Config{Endpoint: "nacos:8848"}, "endpoint"},
		"user in it":      {"it would be shown", registry.Config{Endpoint: "http://a:b@nacos:8848"}, "endpoint"},
		"one":             {"the usual", registry.Config{Endpoint: "http://nacos:8848"}, ""},
		"several":         {"a cluster has three", registry.Config{Endpoint: "http://a:8848, http://b:8848/nacos"}, ""},
		"twice the same":  {"a slip", registry.Config{Endpoint: "http://a:8848,http://a:8848"}, "endpoint"},
		"TLS without use": {"somebody believes that it is used", registry.Config{Endpoint: "http://a", TLS: registry.TLS{CAFile: "x"}}, "tls.caFile"},
		"CA file missing": {"now is better than at the first call", registry.Config{Endpoint: "https://a", TLS: registry.TLS{CAFile: "/nowhere"}}, "tls.caFile"},
		"token":           {"Nacos has users", registry.Config{Endpoint: "http://a", Auth: registry.Auth{TokenFile: password}}, "auth.tokenFile"},
		"user":            {"both are given", registry.Config{Endpoint: "http://a", Auth: registry.Auth{Username: "u", PasswordFile: password}}, ""},
		"no password":     {"a user needs one", registry.Config{Endpoint: "http://a", Auth: registry.Auth{Username: "u"}}, "auth.passwordFile"},
		"empty password":  {"that is none", registry.Config{Endpoint: "http://a", Auth: registry.Auth{Username: "u", PasswordFile: empty}}, "auth.passwordFile"},

		"unknown option":    {"it may be a slip", options(`{"namespaces":"a"}`), "options"},
		"all options":       {"as documented", options(`{"namespace":"3f2a-b_c","group":"G.1:a","cluster":"c1","weight":0.5,"apiVersion":"v3","healthChecker":"server"}`), ""},
		"ephemeral":         {"as documented", options(`{"ephemeral":true,"heartbeatInterval":"10s","apiVersion":"v2"}`), ""},
		"empty namespace":   {"the default has a name", options(`{"namespace":""}`), "options.namespace"},
		"namespace":         {"the ID is wanted, not the name", options(`{"namespace":"my namespace"}`), "options.namespace"},
		"long namespace":    {"Nacos refuses it", options(`{"namespace":"` + strings.Repeat("a", 65) + `"}`), "options.namespace"},
		"group":             {"Nacos takes what is before @@ for it", options(`{"group":"a@@b"}`), "options.group"},
		"cluster":           {"Nacos refuses dots here", options(`{"cluster":"a.b"}`), "options.cluster"},
		"weight zero":       {"Nacos sends such an instance nothing", options(`{"weight":0}`), "options.weight"},
		"weight too large":  {"Nacos refuses it", options(`{"weight":10001}`), "options.weight"},
		"version":           {"there is none such", options(`{"apiVersion":"3"}`), "options.apiVersion"},
		"checker":           {"there is none such", options(`{"healthChecker":"TCP"}`), "options.healthChecker"},
		"checker of no use": {"ephemeral instances are not probed", options(`{"ephemeral":true,"healthChecker":"none"}`), "options.healthChecker"},
		"beats of no use":   {"persistent ones need none", options(`{"heartbeatInterval":"5s"}`), "options.heartbeatInterval"},
		"no time":           {"a number has no unit", options(`{"ephemeral":true,"heartbeatInterval":"5"}`), "options.heartbeatInterval"},
		"too often":         {"the servers look every 5 s", options(`{"ephemeral":true,"heartbeatInterval":"10ms"}`), "options.heartbeatInterval"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := nacos.New(t.Context(), tc.cfg)
			field, _ := registry.FieldOf(err)
			if field != tc.field || (err == nil) != (tc.field == "") {
				t.Errorf("got error %v of field %q, want one of %q\nreason: %s", err, field, tc.field, tc.reason)
			}
		})
	}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
