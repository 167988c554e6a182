package eureka_test

import (
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

// calls are all that a driver can be asked.
func calls(t *testing.T, d interface {
	registry.Lister
	registry.Heartbeater
	registry.Registry
}, in registry.Instance) map[string]error {
	t.Helper()
	_, listErr := d.List(t.Context(), in.Cluster)
	return map[string]error{
		"Register": d.Register(t.Context(), in), "FailOver": d.FailOver(t.Context(), in),
		"Heartbeat": d.Heartbeat(t.Context(), in), "List": listErr, "Deregister": d.Deregister(t.Context(), in),
	}
}

// TestMutualTLS is on a server that serves only who shows a certificate of its authority.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, starter(eureka.Options{ClientCertificates: true}))
	good := configOf(t, server)
	for name, tc := range map[string]struct {
		reason string
		tls    registry.TLS
		says   string // "": no error
		field  string // "": none, and it passes
	}{
		"good": {reason: "the plain case", tls: good.TLS},
		"no certificate": {
			reason: "it has to be told what is missing", tls: registry.TLS{CAFile: server.CAFile},
			says: "certificate", field: "tls.certFile",
		},
		"a stranger's certificate": {
			reason: "it has to be told which one is not good",
			tls:    registry.TLS{CAFile: server.CAFile, CertFile: server.StrangerCertFile, KeyFile: server.StrangerKeyFile},
			says:   "certificate", field: "tls.certFile",
		},
		"an authority that is not the server's": {
			reason: "without a CA, the certificate of the server is not trusted", tls: registry.TLS{},
			says: "certificate signed by unknown authority", field: "tls.caFile",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			cfg.TLS = tc.tls
			for call, err := range calls(t, open(t, cfg), web(t, 1)) {
				if tc.says == "" {
					if err != nil {
						t.Errorf("%s: %v\nreason: %s", call, err, tc.reason)
					}
					continue
				}
				field, _ := registry.FieldOf(err)
				if err == nil || !strings.Contains(err.Error(), tc.says) || field != tc.field || !registry.IsTerminal(err) {
					t.Errorf("%s: got error %v of field %q, want a terminal one with %q of %s\nreason: %s",
						call, err, field, tc.says, tc.field, tc.reason)
				}
			}
		})
	}
}

// TestUnknownUsersGetTheFieldToCorrect names the field to correct.
func TestUnknownUsersGetTheFieldToCorrect(t *testing.T) {
	t.Parallel()
	server := guarded.Use(t)
	for name, tc := range map[string]struct {
		auth  registry.Auth
		field string
	}{
		"wrong password": {registry.Auth{Username: server.User, PasswordFile: drivertest.File(t, wrongPassword)}, "auth.passwordFile"},
		"wrong user":     {registry.Auth{Username: "nobody", PasswordFile: drivertest.File(t, server.Password)}, "auth.passwordFile"},
		"no user at all": {registry.Auth{}, "auth.username"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configOf(t, server)
			cfg.Auth = tc.auth
			for call, err := range calls(t, open(t, cfg), web(t, 1)) {
				if field, _ := registry.FieldOf(err); field != tc.field || !registry.IsTerminal(err) {
					t.Errorf("%s: got error %v of field %q, want a terminal one of %s", call, err, field, tc.field)
				}
			}
		})
	}
}
