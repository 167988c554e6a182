package etcd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/naming/resolver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// TestGRPCClientFollows is the proof that real readers see what is written: a gRPC client that finds its servers with
// etcd's own resolver, and calls them.
func TestGRPCClientFollows(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]string{
		"default": "", "own target": `{"target": "shop/{service}/grpc"}`, "lease": `{"lease": "5m"}`,
	}, func(t *testing.T, options string) {
		s := start(t, etcd.Options{})
		cfg := config(t, s)
		target := "services/%s"
		if cfg.Options = json.RawMessage(options); strings.Contains(options, "target") {
			target = "shop/%s/grpc"
		}
		d := open(t, cfg)
		first := serveHealth(t)
		second := first
		second.Address, second.Port = "127.0.0.1", serveHealth(t).Port
		second.Pod, second.UID = "second", "uid-of-second"
		client := dial(t, connect(t, s, "", ""), fmt.Sprintf(target, first.Service))

		call(t, d.Register, first)
		client.expectServers(t, "after the first is registered", first)
		call(t, d.Register, second)
		client.expectServers(t, "after the second is registered", first, second)
		call(t, d.FailOver, first)
		client.expectServers(t, "after the first failed over", second)
		expect.NoError(t, s.Restart(t.Context()))
		expect.Soon(t, "the call to succeed", func() error { return d.Register(t.Context(), first) }) // the first may not
		client.expectServers(t, "after a restart of etcd, and the first put back", first, second)
		call(t, d.Deregister, second)
		client.expectServers(t, "after the second is deregistered", first)
		call(t, d.Deregister, first)
		client.expectNoServer(t, "after the last is deregistered")
	})
}

// TestServiceWithASlash: the name is escaped, and a reader finds it where the documentation says.
func TestServiceWithASlash(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	d := open(t, config(t, s))
	outer := serveHealth(t)
	inner := outer
	inner.Service, inner.Port, inner.Pod, inner.UID = outer.Service+"/inner", serveHealth(t).Port, "inner", "uid-of-inner"
	call(t, d.Register, inner)
	call(t, d.Register, outer)
	etcdClient := connect(t, s, "", "")
	dial(t, etcdClient, "services/"+outer.Service).expectServers(t, "of the outer service", outer)
	dial(t, etcdClient, "services/"+outer.Service+"%252Finner").expectServers(t, "of the inner service", inner)
}

// TestEntriesAreThoseOfNamingEndpoints: they are what etcd's own package would have written, and it reads them.
func TestEntriesAreThoseOfNamingEndpoints(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	d := open(t, config(t, s))
	c := connect(t, s, "", "")
	in := pod("fd00::1", 8080)
	in.Weight, in.Zone, in.Metadata = 50, "zone-a", map[string]string{"version": "v1", "odd": `<"ü">`}
	call(t, d.Register, in)

	key := "services/" + in.Service + "/[fd00::1]:8080"
	meta := map[string]any{}
	for k, v := range in.Meta() {
		meta[k] = v
	}
	want := endpoints.Endpoint{Addr: "[fd00::1]:8080", Metadata: meta}
	manager, err := endpoints.NewManager(c, "services/"+in.Service)
	expect.NoError(t, err)
	got, err := manager.List(t.Context())
	if diff := cmp.Diff(endpoints.Key2EndpointMap{key: want}, got); err != nil || diff != "" {
		t.Errorf("etcd's package reads %v (-want +got):\n%s", err, diff)
	}
	ours := value(t, c, key)
	expect.NoError(t, manager.AddEndpoint(t.Context(), key, want))
	if theirs := value(t, c, key); theirs != ours {
		t.Errorf("the driver writes\n%s\nand etcd's package\n%s", ours, theirs)
	}
	call(t, d.Deregister, in)
	if got, err := manager.List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("after its removal: %v, %v", got, err)
	}
}

func value(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	answer, err := c.Get(t.Context(), key)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("reading %s: %v, %v", key, answer, err)
	}
	return string(answer.Kvs[0].Value)
}

// serveHealth starts a gRPC server with the health service, and returns it as a pod's instance.
func serveHealth(t *testing.T) registry.Instance {
	t.Helper()
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	at, err := netip.ParseAddrPort(drivertest.ServeGRPC(t, server))
	expect.NoError(t, err)
	return pod(at.Addr().String(), int(at.Port()))
}

// client calls the health service of a target.
type client struct{ health healthpb.HealthClient }

func dial(t *testing.T, c *clientv3.Client, target string) client {
	t.Helper()
	builder, err := resolver.NewBuilder(c)
	expect.NoError(t, err)
	conn, err := grpc.NewClient("etcd:///"+target, grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return client{health: healthpb.NewHealthClient(conn)}
}

// ask makes one call and returns who answered it.
func (c client) ask(t *testing.T) (string, error) {
	t.Helper()
	ctx := drivertest.Within(t, patience)
	var from peer.Peer
	answer, err := c.health.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&from))
	if err != nil {
		return "", err
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return "", fmt.Errorf("the server says %s", answer.GetStatus())
	}
	return from.Addr.String(), nil
}

// expectServers waits until the calls reach these servers and no others.
func (c client) expectServers(t *testing.T, when string, want ...registry.Instance) {
	t.Helper()
	wanted := map[string]bool{}
	for _, in := range want {
		wanted[in.Endpoint()] = true
	}
	expect.Soon(t, fmt.Sprintf("%s the calls reach %v", when, wanted), func() error {
		reached := map[string]bool{}
		for range 10 * len(wanted) { // in turn
			from, err := c.ask(t)
			if err != nil {
				return err
			}
			reached[from] = true
		}
		if !cmp.Equal(wanted, reached) {
			return fmt.Errorf("they reach %v", reached)
		}
		return nil
	})
}

// expectNoServer waits until calls fail because there is no server to call.
func (c client) expectNoServer(t *testing.T, when string) {
	t.Helper()
	expect.Soon(t, when+" there is no server to call", func() error {
		from, err := c.ask(t)
		switch {
		case err == nil:
			return fmt.Errorf("%s answers", from)
		case !strings.Contains(err.Error(), "produced zero addresses") && !strings.Contains(err.Error(), "no children"):
			return err
		}
		return nil
	})
}

// call makes a call of the driver that must succeed.
func call(t *testing.T, do func(context.Context, registry.Instance) error, in registry.Instance) {
	t.Helper()
	ctx := drivertest.Within(t, patience)
	expect.NoError(t, do(ctx, in))
}
