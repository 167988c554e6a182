package etcd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// TestCoreDNSFollows: who looks a service up in DNS is given the pods that are in rotation, and no others, with their ports,
// their weights, and names of their own that have an address.
func TestCoreDNSFollows(t *testing.T) {
	t.Parallel()
	s := start(t, etcd.Options{})
	cfg := config(t, s)
	cfg.Options = json.RawMessage(`{"format": "skydns"}`)
	d := open(t, cfg)
	server, err := s.StartCoreDNS(t.Context())
	expect.NoError(t, err)
	t.Cleanup(server.Stop)
	dns := registries.Resolver(server.Address)
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
