package etcd_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// formats are what clients that are not gRPC's own read, and what an application writes there itself, with SERVICE and
// ADDRESS for its own. Taken from
//
//   - zeromicro/go-zero core/discov/publisher.go and internal/registry.go: all keys below KEY/ (commit 02a9123d7e4f);
//   - go-kratos/kratos contrib/registry/etcd/registry.go (commit 16c2f3959566) and registry/registry.go (b88db2a533de);
//   - cloudwego-contrib/cwgo-pkg registry/etcd/internal/common.go (commit 0eccb486ffeb);
//   - coredns/coredns plugin/etcd/msg/service.go (v1.15.0).
var formats = map[string]struct{ options, prefix, key, value, app string }{
	"go-zero": {`{"format": "go-zero"}`, "SERVICE/", "SERVICE/ADDRESS", `ADDRESS`, `ADDRESS`},
	"kratos": {
		`{"format": "kratos"}`, "/microservices/SERVICE", "/microservices/SERVICE/ADDRESS",
		`{"id":"ADDRESS","name":"SERVICE","version":"v1","metadata":META,"endpoints":["grpc://ADDRESS"]}`,
		`{"id":"x","name":"SERVICE","version":"","metadata":null,"endpoints":["http://10.9.9.9:80","grpc://ADDRESS"]}`,
	},
	"kitex": {
		`{"format": "kitex"}`, "kitex/registry-etcd/SERVICE", "kitex/registry-etcd/SERVICE/ADDRESS",
		`{"network":"tcp","address":"ADDRESS","weight":7,"tags":META}`,
		`{"network":"tcp","address":"ADDRESS","weight":10,"tags":null}`,
	},
	"hertz": {
		`{"format": "kitex", "target": "hertz/registry-etcd/{service}"}`, "hertz/registry-etcd/SERVICE", "hertz/registry-etcd/SERVICE/ADDRESS",
		`{"network":"tcp","address":"ADDRESS","weight":7,"tags":META}`, ``,
	},
	"skydns": {
		`{"format": "skydns"}`, "/skydns/local/skydns/SERVICE", "/skydns/local/skydns/SERVICE/fd00--1-8080",
		`{"host":"fd00::1","port":8080,"weight":7,"ttl":5,"metadata":META}`,
		`{"host":"HOST","port":PORT}`,
	},
	"kratos elsewhere": {
		`{"format": "kratos", "target": "/shop/{service}", "scheme": "https"}`, "/shop/SERVICE", "/shop/SERVICE/ADDRESS",
		`{"id":"ADDRESS","name":"SERVICE","version":"v1","metadata":META,"endpoints":["https://ADDRESS"]}`, ``,
	},
}

// TestFormatsAreThoseOfTheirClients reads what the clients of each format read.
func TestFormatsAreThoseOfTheirClients(t *testing.T) {
	t.Parallel()
	for name, f := range formats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared.Use(t)
			cfg := config(t, s)
			cfg.Options = json.RawMessage(f.options)
			d, c := open(t, cfg), connect(t, s, "", "")
			in := pod("fd00::1", 8080)
			in.Weight, in.Metadata = 7, map[string]string{"version": "v1"}
			mark, err := json.Marshal(in.Meta())
			expect.NoError(t, err)
			fill := strings.NewReplacer("SERVICE", in.Service, "ADDRESS", in.Endpoint(), "META", string(mark)).Replace
			expectRead := func(want map[string]string) {
				t.Helper()
				answer, err := c.Get(t.Context(), fill(f.prefix), clientv3.WithPrefix())
				expect.NoError(t, err)
				got := map[string]string{}
				for _, kv := range answer.Kvs {
					got[string(kv.Key)] = string(kv.Value)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("what clients read, -want +got:\n%s", diff)
				}
			}
			for _, leave := range []func(context.Context, registry.Instance) error{d.FailOver, d.Deregister} {
				call(t, d.Register, in)
				expectRead(map[string]string{fill(f.key): fill(f.value)})
				call(t, leave, in)
				expectRead(map[string]string{})
			}
			in.Service += "/b"
			expect.Code(t, registry.CodeTerminal, d.Register(t.Context(), in), "a name with a slash: no client would look below it")
		})
	}
}

func TestConformanceOfFormats(t *testing.T) {
	t.Parallel()
	for name, f := range formats {
		if f.app == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, etcd.Options{})
			cfg := config(t, s)
			cfg.Options = json.RawMessage(f.options)
			h := harness(t, s, cfg, startWithUsers(t))
			h.Lacks[registrytest.AnyServiceName] = "clients look a name up unescaped"
			if name == "skydns" {
				h.Lacks[registrytest.MixedCaseName] = "CoreDNS looks names up in lower case, label by label"
			}
			if name == "go-zero" {
				h.Foreign, h.Copy = nil, nil // Rollcall reads its own records, not what clients read
			}
			registrytest.Run(t, h)
		})
	}
}
