package eureka_test

import (
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

// TestMutualTLS is on a server that serves only who shows a certificate of its authority. Other certificates are the kit's.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, starter(eureka.Options{ClientCertificates: true}))
	cfg := configOf(t, server)
	for call, err := range calls(t, open(t, cfg), web(t, 1)) {
		if err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
	cfg.TLS.CertFile, cfg.TLS.KeyFile = "", ""
	for call, err := range calls(t, open(t, cfg), web(t, 1)) {
		if field, _ := registry.FieldOf(err); field != "tls.certFile" || !registry.IsTerminal(err) {
			t.Errorf("%s: got error %v of field %q, want a terminal one of tls.certFile", call, err, field)
		}
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
