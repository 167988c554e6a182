package consul_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
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
	ctx := drivertest.Within(t, bound)
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
	a.Weight, a.Zone, a.Tags, a.Metadata = 7, "zone-a", []string{"http", "primary"}, map[string]string{"version": "v1"}
	b.Tags = []string{"http"}
	shows := func(when string, want ...registry.Instance) {
		t.Helper()
		expectHealthy(t, server, when, a.Service, want...)
		expectResolved(t, server, when, a.Service, want...)
		for _, tag := range []string{"http", "primary"} {
			tagged := slices.DeleteFunc(slices.Clone(want), func(in registry.Instance) bool { return !slices.Contains(in.Tags, tag) })
			expectResolved(t, server, when, tag+"."+a.Service, tagged...)
		}
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

// TestReadersOfAllFollow: readers that ask for no check are given no pod that is out, with the option. One reads as Spring Cloud Consul does
// by default, the other reads the catalog.
func TestReadersOfAllFollow(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	cfg := configOf(t, server)
	cfg.Cluster, cfg.Options = t.Name(), json.RawMessage(`{"outOfRotation":"delete"}`)
	d, a, b := open(t, cfg), pod(t, 1), pod(t, 2)
	shows := func(when string, want ...string) {
		t.Helper()
		all, err := health(t.Context(), server, a.Service, false)
		expect.NoError(t, err)
		var byHealth, byCatalog []string
		for _, e := range all {
			byHealth = append(byHealth, e.Service.Address)
		}
		var services []struct{ ServiceAddress string }
		expect.NoError(t, server.Do(t.Context(), http.MethodGet, "/v1/catalog/service/"+a.Service, nil, &services))
		for _, s := range services {
			byCatalog = append(byCatalog, s.ServiceAddress)
		}
		slices.Sort(byHealth)
		slices.Sort(byCatalog)
		expect.Equal(t, want, byHealth, "%s: the health endpoint without passing", when)
		expect.Equal(t, want, byCatalog, "%s: the catalog", when)
	}
	must(t, d.Register, a, b)
	shows("both are in", a.Address, b.Address)
	must(t, d.FailOver, a)
	must(t, d.FailOver, a)
	shows("one is out", b.Address)
	must(t, d.Register, a)
	shows("it is back", a.Address, b.Address)
	must(t, d.FailOver, a, b)
	must(t, d.Deregister, a, b)
	shows("all are gone")
}

// TestClientsChooseAnAddress: clients of the health endpoint and of DNS are given a pod's address of the family that they ask for.
func TestClientsChooseAnAddress(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	needsTaggedAddresses(t, server)
	d := openFor(t, server)
	both, one := pod(t, 1), pod(t, 2)
	both.Metadata = map[string]string{"lan_ipv4": both.Address, "lan_ipv6": "fd00:10:244::1", "wan": "192.0.2.1"}
	must(t, d.Register, both, one)
	given, err := health(t.Context(), server, both.Service, true)
	expect.NoError(t, err)
	tagged := map[string]string{}
	for _, e := range given {
		for tag, a := range e.Service.TaggedAddresses {
			tagged[e.Service.Address+" "+tag] = net.JoinHostPort(a.Address, strconv.Itoa(a.Port))
		}
	}
	expect.Equal(t, map[string]string{
		"10.1.0.1 lan_ipv4": "10.1.0.1:8080", "10.1.0.1 lan_ipv6": "[fd00:10:244::1]:8080", "10.1.0.1 wan": "192.0.2.1:8080",
	}, tagged, "the health endpoint")
	dns := registries.Resolver(server.DNS)
	expect.Equal(t, []string{"10.1.0.1", "10.1.0.2", "fd00:10:244::1"}, addressesOf(t, dns, both.Service+".service.consul."), "A and AAAA")

	listed, err := d.List(t.Context(), t.Name())
	expect.NoError(t, err)
	for _, e := range listed {
		if e.Address == both.Address && !e.Instance.Equal(both) {
			t.Errorf("the list has %+v, want %+v: each resync would register it again", e.Instance, both)
		}
	}
	delete(both.Metadata, "wan")
	must(t, d.Register, both)
	given, err = health(t.Context(), server, both.Service, true)
	expect.NoError(t, err)
	for _, e := range given {
		if _, stays := e.Service.TaggedAddresses["wan"]; stays {
			t.Error("an address that the pod no longer has is still given")
		}
	}
}

func needsTaggedAddresses(t *testing.T, server *consul.Server) {
	t.Helper()
	var self struct{ Config struct{ Version string } }
	expect.NoError(t, server.Do(t.Context(), http.MethodGet, "/v1/agent/self", nil, &self))
	if strings.HasPrefix(self.Config.Version, "1.19.") {
		t.Skip("transactions have tagged addresses since Consul 1.20.6 (hashicorp/consul#22248)")
	}
}

// TestKratosReadsAURL of its scheme among the tagged addresses, as a Kratos application registers itself.
func TestKratosReadsAURL(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	needsTaggedAddresses(t, server)
	cfg := configOf(t, server)
	cfg.Cluster, cfg.Options = t.Name(), json.RawMessage(`{"kratosScheme":"grpc"}`)
	d, in := open(t, cfg), pod(t, 1)
	in.Address = "fd00:10:244::1"
	must(t, d.Register, in)
	given, err := health(t.Context(), server, in.Service, true)
	expect.NoError(t, err)
	for _, e := range given {
		if url := e.Service.TaggedAddresses["grpc"]; url.Address != "grpc://"+in.Endpoint() || url.Port != in.Port || len(e.Service.TaggedAddresses) > 1 {
			t.Errorf("clients are given %v, want a URL of the scheme", e.Service.TaggedAddresses)
		}
	}
	expect.Equal(t, 1, len(given), "instances")
	must(t, d.Deregister, in)
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
	expect.Equal(t, want, got, "%s: the health endpoint", when)
}

// expectResolved wants the addresses and ports of these instances of Consul's DNS.
func expectResolved(t *testing.T, server *consul.Server, when, service string, want ...registry.Instance) {
	t.Helper()
	dns := registries.Resolver(server.DNS)
	name := service + ".service.consul."
	var addresses, targets []string
	for _, in := range want {
		addresses = append(addresses, in.Address)
		targets = append(targets, fmt.Sprintf("%s weight %d", in.Endpoint(), max(in.Weight, 1)))
	}
	slices.Sort(addresses)
	slices.Sort(targets)
	expect.Equal(t, addresses, addressesOf(t, dns, name), "%s: the addresses in DNS", when)
	_, records, err := dns.LookupSRV(t.Context(), "", "", name)
	expectFound(t, name, err)
	var got []string
	for _, srv := range records {
		for _, address := range addressesOf(t, dns, srv.Target) {
			got = append(got, fmt.Sprintf("%s weight %d", net.JoinHostPort(address, fmt.Sprint(srv.Port)), srv.Weight))
		}
	}
	slices.Sort(got)
	expect.Equal(t, targets, got, "%s: the targets in DNS", when)
}

func addressesOf(t *testing.T, dns *net.Resolver, name string) (addresses []string) {
	t.Helper()
	found, err := dns.LookupNetIP(t.Context(), "ip", name)
	expectFound(t, name, err)
	for _, address := range found {
		addresses = append(addresses, address.Unmap().String())
	}
	slices.Sort(addresses)
	return addresses
}

// expectFound wants an answer, be it that there is no such name.
func expectFound(t *testing.T, name string, err error) {
	t.Helper()
	if missing := new(net.DNSError); err != nil && (!errors.As(err, &missing) || !missing.IsNotFound) {
		t.Fatalf("asking DNS for %s: %v", name, err)
	}
}
