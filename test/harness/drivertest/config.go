package drivertest

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Secret stands in the files of credentials; no error may have it.
const Secret = "hunter2"

// Case is one configuration.
type Case struct {
	Reason string
	Config registry.Config
	// Field is the one that the error names, and Says a part of the error. With no Field the driver is made.
	Field, Says string
}

// Driver is a driver under test.
type Driver struct {
	New registry.Constructor
	// Good is an address that it takes, with TLS where addresses tell of that.
	Good string
	// Auth are the kinds of credentials that it takes.
	Auth []driverkit.AuthKind
}

// Wrong is a case that the driver refuses.
func Wrong(reason string, cfg registry.Config, field, says string) Case {
	return Case{reason, cfg, field, says}
}

// At is a case of an endpoint that the driver refuses.
func (d Driver) At(reason, endpoint, says string) Case {
	return Case{reason, registry.Config{Endpoint: endpoint}, "endpoint", says}
}

// Options is a case of options at the good address.
func (d Driver) Options(reason, options, field, says string) Case {
	return Case{reason, registry.Config{Endpoint: d.Good, Options: json.RawMessage(options)}, field, says}
}

// Run makes a driver of each configuration: of those that are the same for all drivers, and of its own.
func (d Driver) Run(t *testing.T, own map[string]Case) {
	t.Helper()
	cases := d.common(t)
	maps.Copy(cases, own)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := d.New(t.Context(), tc.Config)
			if closer, ok := made.(io.Closer); ok {
				_ = closer.Close()
			}
			field, _ := registry.FieldOf(err)
			if (err == nil) != (tc.Field == "") || field != tc.Field || err != nil && !strings.Contains(err.Error(), tc.Says) {
				t.Fatalf("New: got error %v of field %q, want one of %q with %q\nreason: %s", err, field, tc.Field, tc.Says, tc.Reason)
			}
			if err != nil && strings.Contains(err.Error(), Secret) {
				t.Errorf("New: the error repeats a secret: %v", err)
			}
		})
	}
}

// common are those that show that a driver asks the kit: what the kit then takes and refuses is tested there.
func (d Driver) common(t *testing.T) map[string]Case {
	t.Helper()
	const missing = "/does/not/exist"
	secret := File(t, Secret+"\n")
	withTLS := func(files registry.TLS) registry.Config { return registry.Config{Endpoint: d.Good, TLS: files} }
	withAuth := func(auth registry.Auth) registry.Config { return registry.Config{Endpoint: d.Good, Auth: auth} }
	cases := map[string]Case{
		"a good address":    {"the registry may come up later", registry.Config{Endpoint: d.Good}, "", ""},
		"no endpoint":       d.At("there is no default", "", "is missing"),
		"an unknown option": d.Options("a misspelt one must not be ignored", `{"colour": "red"}`, "options", `"colour"`),
		"no CA file":        {"a Secret was not mounted", withTLS(registry.TLS{CAFile: missing}), "tls.caFile", "can read"},
	}
	token := map[string]Case{
		"a token of no use": {"it would be ignored", withAuth(registry.Auth{TokenFile: secret}), "auth.tokenFile", "remove it"},
	}
	if slices.Contains(d.Auth, driverkit.Token) {
		token = map[string]Case{
			"no token file": {"a Secret was not mounted", withAuth(registry.Auth{TokenFile: missing}), "auth.tokenFile", "can read"},
		}
	}
	login := registry.Auth{Username: "me", PasswordFile: secret}
	password := map[string]Case{"a user of no use": {"it would be ignored", withAuth(login), "auth.username", "remove it"}}
	if slices.Contains(d.Auth, driverkit.Password) {
		noFile := registry.Auth{Username: "me", PasswordFile: missing}
		password = map[string]Case{
			"a user and a password": {"both are given", withAuth(login), "", ""},
			"no password file":      {"a Secret was not mounted", withAuth(noFile), "auth.passwordFile", "can read"},
		}
	}
	maps.Copy(cases, token)
	maps.Copy(cases, password)
	return cases
}
