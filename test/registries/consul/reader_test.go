package consul_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

// bound is generous: what is waited for comes at once.
const bound = time.Minute

// pod returns an instance of a service of the test's own.
func pod(t *testing.T, n int) registry.Instance {
	t.Helper()
	return registry.Instance{
		Service: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), Address: fmt.Sprintf("10.1.0.%d", n), Port: 8080,
		Cluster: t.Name(), Namespace: "shop", Pod: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("%s-%d", t.Name(), n),
	}
}

// openFor opens a driver of the test's own cluster, with the least rights.
func openFor(t *testing.T, server *consul.Server) *driver.Registry {
	t.Helper()
	cfg := configOf(t, server)
	cfg.Cluster = t.Name()
	return open(t, cfg)
}

type call = func(context.Context, registry.Instance) error

// must makes a call for each instance.
func must(t *testing.T, call call, ins ...registry.Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for _, in := range ins {
		expect.NoError(t, call(ctx, in))
	}
}

// TestClientsFollow has a client of the health endpoint and one of DNS look at a service through the life of its pods.
func TestClientsFollow(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	d := openFor(t, server)
	a, b, six := pod(t, 1), pod(t, 2), pod(t, 3)
	six.Address, six.Port = "fd00:10:244::3", 9090
	a.Weight, a.Zone, a.Metadata = 7, "zone-a", map[string]string{"version": "v1"}
	shows := func(when string, want ...registry.Instance) {
		t.Helper()
		expectHealthy(t, server, when, a.Service, want...)
		expectResolved(t, server, when, a.Service, want...)
	}

	shows("before any is registered")
	must(t, d.Register, a)
	shows("one is registered", a)
	must(t, d.Register, b, six)
	shows("all are registered", a, b, six)
	must(t, d.FailOver, a)
	shows("one has failed over", b, six)
	must(t, d.Register, a)
	shows("it is back", a, b, six)
	must(t, d.Deregister, b)
	shows("another is deregistered", a, six)
	must(t, d.FailOver, six)
	must(t, d.Deregister, a, six)
	shows("all are deregistered")
}

// expectHealthy wants these instances of /v1/health/service?passing, and what clients read there of each.
func expectHealthy(t *testing.T, server *consul.Server, when, service string, want ...registry.Instance) {
	t.Helper()
	given, err := health(t.Context(), server, service, true)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	var got []registry.Instance
	for _, e := range given {
		got = append(got, entryOf(e, true).Instance)
		if weight := max(got[len(got)-1].Weight, 1); e.Service.Weights.Passing != weight {
			t.Errorf("%s: the weight of %s is %d, want %d", when, e.Service.ID, e.Service.Weights.Passing, weight)
		}
	}
	byEndpoint := func(x, y registry.Instance) int { return strings.Compare(x.Endpoint(), y.Endpoint()) }
	slices.SortFunc(got, byEndpoint)
	want = slices.SortedFunc(slices.Values(want), byEndpoint)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the health endpoint, -want +got:\n%s", when, diff)
	}
}

// expectResolved wants the addresses and ports of these instances of Consul's DNS.
func expectResolved(t *testing.T, server *consul.Server, when, service string, want ...registry.Instance) {
	t.Helper()
	var addresses, targets []string
	for _, in := range want {
		ip := netip.MustParseAddr(in.Address)
		addresses = append(addresses, ip.String())
		targets = append(targets, fmt.Sprintf("%s weight %d", in.Endpoint(), max(in.Weight, 1)))
	}
	slices.Sort(addresses)
	slices.Sort(targets)
	name := service + ".service.consul."
	gotAddresses := slices.Sorted(slices.Values(slices.Concat(
		addressesIn(lookUp(t, server, name, dnsmessage.TypeA).Answers),
		addressesIn(lookUp(t, server, name, dnsmessage.TypeAAAA).Answers),
	)))
	if diff := cmp.Diff(addresses, gotAddresses); diff != "" {
		t.Errorf("%s: the addresses in DNS, -want +got:\n%s", when, diff)
	}
	if diff := cmp.Diff(targets, targetsIn(lookUp(t, server, name, dnsmessage.TypeSRV))); diff != "" {
		t.Errorf("%s: the targets in DNS, -want +got:\n%s", when, diff)
	}
}

// targetsIn resolves each SRV record by the address that comes with it.
func targetsIn(m dnsmessage.Message) []string {
	addressOf := map[string]string{}
	for _, r := range m.Additionals {
		for _, address := range addressesIn([]dnsmessage.Resource{r}) {
			addressOf[r.Header.Name.String()] = address
		}
	}
	var targets []string
	for _, r := range m.Answers {
		if srv, ok := r.Body.(*dnsmessage.SRVResource); ok {
			address := addressOf[srv.Target.String()]
			targets = append(targets, fmt.Sprintf("%s weight %d", net.JoinHostPort(address, fmt.Sprint(srv.Port)), srv.Weight))
		}
	}
	slices.Sort(targets)
	return targets
}

func addressesIn(resources []dnsmessage.Resource) []string {
	var addresses []string
	for _, r := range resources {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			addresses = append(addresses, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			addresses = append(addresses, netip.AddrFrom16(body.AAAA).String())
		}
	}
	return addresses
}

// lookUp asks Consul's DNS server. It must know the name or say that there is none.
func lookUp(t *testing.T, server *consul.Server, name string, kind dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	m, err := exchange(t.Context(), server.DNS, name, kind)
	if err != nil {
		t.Fatalf("asking DNS for %s of %s: %v", kind, name, err)
	}
	if m.RCode != dnsmessage.RCodeSuccess && m.RCode != dnsmessage.RCodeNameError {
		t.Fatalf("asking DNS for %s of %s: %s", kind, name, m.RCode)
	}
	return m
}

func exchange(ctx context.Context, server, name string, kind dnsmessage.Type) (m dnsmessage.Message, err error) {
	const id = 4711
	question := dnsmessage.Question{Type: kind, Class: dnsmessage.ClassINET}
	if question.Name, err = dnsmessage.NewName(name); err != nil {
		return m, err
	}
	query := dnsmessage.Message{Header: dnsmessage.Header{ID: id}, Questions: []dnsmessage.Question{question}}
	raw, err := query.Pack()
	if err != nil {
		return m, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server) // UDP answers are cut short without telling
	if err != nil {
		return m, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(bound)); err != nil {
		return m, err
	}
	// Over TCP each message comes after its length.
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...)); err != nil {
		return m, err
	}
	var length uint16
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
		return m, err
	}
	answer := make([]byte, length)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return m, err
	}
	if err := m.Unpack(answer); err != nil {
		return m, err
	}
	if m.ID != id || m.Truncated {
		return m, errors.New("the answer is cut short, or that of another question")
	}
	return m, nil
}
