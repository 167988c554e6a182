package nacos_test

import (
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAddressesInBrackets are what clients of Spring Cloud Alibaba make URLs of.
func TestAddressesInBrackets(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d, plain := at(t, f.URL, `{"ipv6Brackets":true}`), at(t, f.URL, `{}`)
	six, four := drivertest.Pod(1), drivertest.Pod(2)
	six.Address = "fd00::7"
	lists := func(d registry.Lister, want ...registry.Entry) {
		t.Helper()
		got, err := d.List(t.Context(), six.Cluster)
		expect.NoError(t, err)
		slices.SortFunc(got, func(a, b registry.Entry) int { return a.Port - b.Port })
		expect.Equal(t, want, got, "the list")
	}
	four.Port = 81
	for _, in := range []registry.Instance{six, four} {
		expect.NoError(t, d.Register(t.Context(), in))
	}
	f.mu.Lock()
	if f.posted["[fd00::7] 80"] == nil || f.posted["10.0.0.2 81"] == nil {
		t.Errorf("registered %v, want IPv6 in brackets, and IPv4 as it is", f.posted)
	}
	f.mu.Unlock()
	inService := func(in registry.Instance) registry.Entry {
		return registry.Entry{Instance: in, State: registry.InService}
	}
	lists(d, inService(six), inService(four))
	drivertest.Says(t, "registered", d, six, registry.InService)
	lists(plain, registry.Entry{Instance: six, State: registry.Foreign, ID: "IP [fd00::7]"}, inService(four))
	expect.NoError(t, d.FailOver(t.Context(), six))
	drivertest.Says(t, "taken out", d, six, registry.OutOfService)
	expect.NoError(t, d.Deregister(t.Context(), six))
	drivertest.Says(t, "removed", d, six, registry.Absent)
	lists(d, inService(four))
}
