package etcd_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/etcd"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		cfg    registry.Config
		field  string // empty where the configuration is right
		says   string
	}{
		"one": {
			reason: "nothing but the endpoint is needed",
			cfg:    registry.Config{Endpoint: "http://127.0.0.1:2379"},
		},
		"several": {
			reason: "each member has an address, and a slash at its end is no path",
			cfg:    registry.Config{Endpoint: "https://a:2379/, https://[fd00::1]:2379"},
		},
		"options": {
			reason: "all options are taken",
			cfg: registry.Config{
				Endpoint: "http://a:2379", Options: json.RawMessage(`{"target": "x/{service}", "lease": "1m30s", "transactionLimit": 1}`),
			},
		},
		"no endpoint": {reason: "it is needed", field: "endpoint", says: "missing"},
		"no scheme": {
			reason: "whether to use TLS is never guessed",
			cfg:    registry.Config{Endpoint: "a:2379"}, field: "endpoint", says: "http",
		},
		"no port": {
			reason: "gRPC would take 443, where no etcd is",
			cfg:    registry.Config{Endpoint: "https://a"}, field: "endpoint", says: "no port",
		},
		"path": {
			reason: "gRPC has no place for it",
			cfg:    registry.Config{Endpoint: "https://a:2379/base"}, field: "endpoint", says: "path",
		},
		"second wrong": {
			reason: "every address is looked at",
			cfg:    registry.Config{Endpoint: "https://a:2379,https://b"}, field: "endpoint", says: "no port",
		},
		"token": {
			reason: "a credential that is not used must not seem to be",
			cfg:    registry.Config{Endpoint: "http://a:2379", Auth: registry.Auth{TokenFile: "token"}}, field: "auth.tokenFile",
		},
		"no password": {
			reason: "a user goes with a password",
			cfg:    registry.Config{Endpoint: "http://a:2379", Auth: registry.Auth{Username: "u"}}, field: "auth.passwordFile",
		},
		"no such file": {
			reason: "a file that can't be read is told at start-up",
			cfg: registry.Config{
				Endpoint: "http://a:2379", Auth: registry.Auth{Username: "u", PasswordFile: "/nonexistent"},
			},
			field: "auth.passwordFile",
		},
		"no such CA": {
			reason: "a file that can't be read is told at start-up",
			cfg:    registry.Config{Endpoint: "https://a:2379", TLS: registry.TLS{CAFile: "/nonexistent"}}, field: "tls.caFile",
		},
		"TLS with http": {
			reason: "who names an authority believes that it is used",
			cfg:    registry.Config{Endpoint: "http://a:2379", TLS: registry.TLS{CAFile: "/nonexistent"}}, field: "tls.caFile",
		},
		"unknown option": {
			reason: "a slip of the pen is told",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"prefix": "x"}`)},
			field:  "options", says: "prefix",
		},
		"target": {
			reason: "without the service all would be one",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"target": "x"}`)},
			field:  "options.target", says: "{service}",
		},
		"lease without unit": {
			reason: "60 of what?",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"lease": 60}`)},
			field:  "options", says: "60s",
		},
		"odd lease": {
			reason: "the text is shown",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"lease": "soon"}`)},
			field:  "options", says: "soon",
		},
		"short lease": {
			reason: "every entry would end when a leader dies, before the next one renews them",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"lease": "59s"}`)},
			field:  "options.lease", says: "at least 1m0s",
		},
		"negative lease": {
			reason: "it is shorter still",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"lease": "-5s"}`)},
			field:  "options.lease", says: "at least 1m0s",
		},
		"half seconds": {
			reason: "etcd counts in seconds",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"lease": "62500ms"}`)},
			field:  "options.lease", says: "whole seconds",
		},
		"limit": {
			reason: "a transaction of nothing does nothing",
			cfg:    registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"transactionLimit": 0}`)},
			field:  "options.transactionLimit", says: "1 or more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := etcd.New(t.Context(), tc.cfg)
			if err == nil {
				if err := d.(*etcd.Registry).Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			}
			field, _ := registry.FieldOf(err)
			if (err == nil) != (tc.field == "") || field != tc.field {
				t.Fatalf("%s: got error %v of field %q, want field %q", tc.reason, err, field, tc.field)
			}
			if err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: the error does not say %q: %v", tc.reason, tc.says, err)
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

func TestShortestLeaseOutlastsAChangeOfLeader(t *testing.T) {
	t.Parallel()
	d, err := etcd.New(t.Context(), registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"lease": "60s"}`)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.(io.Closer).Close() })
	if least := registry.LeastLease(d.(registry.Heartbeater).HeartbeatInterval()); least > time.Minute {
		t.Errorf("a lease of 60s is taken, and has to be %s at least", least)
	}
}
