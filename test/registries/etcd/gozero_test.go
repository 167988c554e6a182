package etcd_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// TestGoZeroClientFollows: go-zero's own client has the pods that are in rotation, and no others.
func TestGoZeroClientFollows(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	cfg := config(t, s)
	cfg.Options = json.RawMessage(`{"format": "go-zero"}`)
	d := open(t, cfg)
	first, second := pod("10.0.0.1", 8080), pod("10.0.0.2", 8080)
	second.Service = first.Service
	call(t, d.Register, first)
	expectAddresses := goZeroClient(t, s, first.Service)
	expectAddresses(first.Endpoint())
	call(t, d.Register, second)
	expectAddresses(first.Endpoint(), second.Endpoint())
	call(t, d.FailOver, first)
	expectAddresses(second.Endpoint())
	call(t, d.Deregister, second)
	expectAddresses()
}

// TestGoZeroKeyOutlivesItsRecord: somebody deletes what is under rollcall/, which no client reads, and then what the clients read.
func TestGoZeroKeyOutlivesItsRecord(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	cfg := config(t, s)
	cfg.Options = json.RawMessage(`{"format": "go-zero"}`)
	d, in := open(t, cfg), pod("10.0.0.1", 8080)
	bare := in.Service + "/" + in.Endpoint()
	says := func(want registry.State, reason string) {
		t.Helper()
		state, err := d.Get(t.Context(), in)
		expect.NoError(t, err)
		expect.Equal(t, want, state, "%s", reason)
	}
	client := connect(t, s, "", "")
	for name, remove := range map[string]func(context.Context, registry.Instance) error{"FailOver": d.FailOver, "Deregister": d.Deregister} {
		call(t, d.Register, in)
		_, err := client.Delete(t.Context(), "rollcall/"+bare)
		expect.NoError(t, err)
		says(registry.InService, "clients are given it")
		call(t, remove, in)
		kept, err := client.Get(t.Context(), bare)
		expect.NoError(t, err)
		expect.Equal(t, 0, len(kept.Kvs), "keys that clients read after %s", name)
		says(registry.Absent, "nothing is left")
	}
	call(t, d.Register, in)
	_, err := client.Delete(t.Context(), bare)
	expect.NoError(t, err)
	says(registry.OutOfService, "no client is given it")
	call(t, d.Register, in)
	says(registry.InService, "it is back")
	call(t, d.Deregister, in)
}

// goZeroClient runs the client for a service. What it returns waits until it has exactly these addresses.
func goZeroClient(t *testing.T, s *etcd.Server, key string) func(want ...string) {
	t.Helper()
	reader := buildReader(t, "gozero")
	client, err := registries.Follow[[]string](exec.CommandContext(t.Context(), reader, "-endpoint", s.URL(), "-key", key))
	expect.NoError(t, err)
	t.Cleanup(client.Stop)
	return func(want ...string) {
		t.Helper()
		ctx := drivertest.Within(t, patience)
		if err := client.Await(ctx, func(got []string) bool { return slices.Equal(want, got) }); err != nil {
			t.Fatalf("the client does not get %v: %v", want, err)
		}
	}
}

// buildReader builds a program that reads etcd as clients do, and returns its path.
func buildReader(t *testing.T, name string) string {
	t.Helper()
	reader, err := registries.BuildReader(t.Context(), t.TempDir(), "./"+name)
	expect.NoError(t, err)
	return reader
}
