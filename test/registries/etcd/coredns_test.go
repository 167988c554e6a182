package etcd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// TestCoreDNSFollows: who looks a service up in DNS is given the pods that are in rotation, and no others, with their ports,
// their weights, and names of their own that have an address.
func TestCoreDNSFollows(t *testing.T) {
	t.Parallel()
	s := start(t, etcd.Options{})
	cfg := config(t, s)
	cfg.Options = json.RawMessage(`{"format": "skydns"}`)
	d, dns := open(t, cfg), coreDNS(t, s)
	first, second := pod("10.0.0.1", 8080), pod("fd00::2", 9090)
	second.Service, first.Weight, second.Weight = first.Service, 1, 3
	name := first.Service + ".skydns.local."
	expectHosts := func(want ...string) {
		t.Helper()
		expect.Soon(t, fmt.Sprintf("DNS to give %v", want), func() error {
			got, err := dns.LookupHost(t.Context(), name)
			if slices.Sort(got); !slices.Equal(want, got) {
				return fmt.Errorf("it gives %v: %w", got, err)
			}
			return nil
		})
	}
	call(t, d.Register, first)
	expectHosts("10.0.0.1")
	call(t, d.Register, second)
	expectHosts("10.0.0.1", "fd00::2")
	_, records, err := dns.LookupSRV(t.Context(), "", "", name)
	expect.NoError(t, err)
	got := map[string]uint16{}
	for _, r := range records {
		hosts, err := dns.LookupHost(t.Context(), r.Target)
		expect.NoError(t, err)
		for _, host := range hosts {
			got[net.JoinHostPort(host, strconv.Itoa(int(r.Port)))] = r.Weight
		}
	}
	if want := map[string]uint16{first.Endpoint(): 25, second.Endpoint(): 75}; !maps.Equal(want, got) {
		t.Errorf("SRV records give %v, want %v: the shares of the weights in a hundred", got, want)
	}
	call(t, d.FailOver, first)
	expectHosts("fd00::2")
	call(t, d.Deregister, second)
	expectHosts()
}

// coreDNS runs CoreDNS for the zone skydns.local and returns a resolver that asks nothing else.
func coreDNS(t *testing.T, s *etcd.Server) *net.Resolver {
	t.Helper()
	program := buildReader(t, "coredns")
	port, err := process.FreePortWith(t.Context())
	expect.NoError(t, err)
	dir := t.TempDir()
	corefile := fmt.Sprintf("skydns.local:%d {\n bind 127.0.0.1\n etcd {\n  endpoint %s\n }\n}\n", port, s.URL())
	expect.NoError(t, os.WriteFile(filepath.Join(dir, "Corefile"), []byte(corefile), 0o600))
	launcher := process.NewLauncher()
	t.Cleanup(launcher.Close)
	server, err := process.Start(launcher, dir, process.Command{Name: "coredns", Path: program})
	expect.NoError(t, err)
	t.Cleanup(server.Kill)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}}
}
