package consul_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

type object = map[string]any

// prefixOf is that of nodes for one test alone, which the shared server has room for. No other begins with it.
func prefixOf(t *testing.T) string {
	t.Helper()
	name := t.Name()
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%.4x-", strings.ToLower(name[:min(strings.IndexByte(name+"/", '/'), 40)]), sum)
}

// neighbour returns an instance at an address that all neighbours have, so that they stand under one node.
func neighbour(t *testing.T, n int) registry.Instance {
	t.Helper()
	in := pod(t, n)
	in.Address, in.Port = pod(t, 1).Address, 8000+n
	return in
}

// openOn opens a driver that writes under nodes of the prefix, through the endpoint if there is one.
func openOn(t *testing.T, server *consul.Server, prefix, endpoint string) *driver.Registry {
	t.Helper()
	cfg := configOf(t, server)
	cfg.Cluster, cfg.Options = t.Name(), fmt.Appendf(nil, `{"nodePrefix": %q}`, prefix)
	if endpoint != "" {
		cfg.Endpoint = endpoint
	}
	return open(t, cfg)
}

func nodes(t *testing.T, server *consul.Server) []string {
	t.Helper()
	var nodes []struct{ Node string }
	expect.NoError(t, server.Do(t.Context(), http.MethodGet, "/v1/catalog/nodes?consistent", nil, &nodes))
	var names []string
	for _, n := range nodes {
		names = append(names, n.Node)
	}
	return names
}

func expectNodes(t *testing.T, server *consul.Server, prefix string, want int, reason string) {
	t.Helper()
	got := slices.DeleteFunc(nodes(t, server), func(name string) bool { return !strings.HasPrefix(name, prefix) })
	if len(got) != want {
		t.Errorf("the catalog has nodes %v, want %d\nreason: %s", got, want, reason)
	}
}

func TestTheNodeGoesWithItsLastService(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d, other := openOn(t, server, prefix, ""), openOn(t, server, prefix, "")
	must(t, d.Register, neighbour(t, 1), neighbour(t, 2), neighbour(t, 3))
	must(t, other.Register, neighbour(t, 4))
	must(t, d.Deregister, neighbour(t, 1))
	must(t, d.FailOver, neighbour(t, 2))
	expectNodes(t, server, prefix, 1, "it has services, one of them out of service")
	must(t, d.Deregister, neighbour(t, 2), neighbour(t, 3))
	expectNodes(t, server, prefix, 1, "it has a service that another process registered")
	must(t, other.Deregister, neighbour(t, 4))
	expectNodes(t, server, prefix, 0, "its last service has gone")

	must(t, d.Deregister, neighbour(t, 1))
	expectNodes(t, server, prefix, 0, "what is absent already makes no node")
	must(t, d.FailOver, neighbour(t, 1))
	expectNodes(t, server, prefix, 0, "what is not known is not made known")
	must(t, d.Register, neighbour(t, 1))
	expectHealthy(t, server, "after the node is there again", neighbour(t, 1).Service, neighbour(t, 1))
}

// TestTheNodeGoesWhenItIsEmptiedOneByOne has one process do it, which does not look at all of the node each time.
func TestTheNodeGoesWhenItIsEmptiedOneByOne(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d := openOn(t, server, prefix, "")
	for range 2 {
		for n := range 8 {
			must(t, d.Register, neighbour(t, n))
		}
		for n := range 8 {
			expectNodes(t, server, prefix, 1, "it has services")
			must(t, d.Deregister, neighbour(t, n))
		}
		expectNodes(t, server, prefix, 0, "its last service has gone")
	}
}

// TestTheNodeGoesWithTheLastOfTwoClusters has two of them share it.
func TestTheNodeGoesWithTheLastOfTwoClusters(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	cfg := configOf(t, server)
	cfg.Options = fmt.Appendf(nil, `{"nodePrefix": %q}`, prefix)
	var drivers [2]*driver.Registry
	for i := range drivers {
		cfg.Cluster = fmt.Sprintf("%s-%d", t.Name(), i)
		drivers[i] = open(t, cfg)
	}
	of := func(cluster, n int) registry.Instance {
		in := neighbour(t, 100*cluster+n)
		in.Cluster = fmt.Sprintf("%s-%d", t.Name(), cluster)
		return in
	}
	const theirs = 20
	must(t, drivers[0].Register, of(0, 0), of(0, 1))
	for n := range theirs {
		must(t, drivers[1].Register, of(1, n))
	}
	must(t, drivers[0].Deregister, of(0, 0)) // looks at the node, which has many more
	for n := range theirs {
		must(t, drivers[1].Deregister, of(1, n))
	}
	must(t, drivers[0].Deregister, of(0, 1))
	expectNodes(t, server, prefix, 0, "its last service has gone")
}

func TestTheNodeGoesWithABatch(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d := openOn(t, server, prefix, "")
	var changes []registry.Change
	for n := range d.BatchLimit() {
		must(t, d.Register, pod(t, n))
		changes = append(changes, registry.Change{Instance: pod(t, n), State: registry.Absent})
	}
	for i, err := range d.Batch(t.Context(), changes) {
		if err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	expectNodes(t, server, prefix, 0, "its last service has gone")
}

// TestARegistrationSurvivesTheDroppingOfTheNode has a pod register before each request that its predecessor's Deregister
// makes, so also in the middle of dropping what was an empty node.
func TestARegistrationSurvivesTheDroppingOfTheNode(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	const last = 6 // read the entry, delete it, read the node, mark it, read it again, delete it
	for step := 1; step <= last+1; step++ {
		t.Run(fmt.Sprintf("before request %d", step), func(t *testing.T) {
			t.Parallel()
			prefix := prefixOf(t)
			other := openOn(t, server, prefix, "")
			var requests atomic.Int64
			proxy, _ := intercept(t, server, func() {
				if requests.Add(1) == int64(step) {
					must(t, other.Register, neighbour(t, 2))
				}
			})
			must(t, other.Register, neighbour(t, 1))
			must(t, openOn(t, server, prefix, proxy).Deregister, neighbour(t, 1))
			if step > last {
				if n := requests.Load(); n != last {
					t.Errorf("it takes %d requests, want %d: there is a moment that this test does not know", n, last)
				}
				expectNodes(t, server, prefix, 0, "no other call came between")
				must(t, other.Register, neighbour(t, 2))
			}
			expectHealthy(t, server, "after the deregistration", neighbour(t, 1).Service, neighbour(t, 2))

			must(t, other.Deregister, neighbour(t, 2))
			expectNodes(t, server, prefix, 0, "a mark that was left behind must not keep the node")
		})
	}
}

// intercept puts a proxy before the server which calls a function before each request, and sends on landed when it was
// answered. A request that the client has given up goes on.
func intercept(t *testing.T, server *consul.Server, before func()) (endpoint string, landed <-chan struct{}) {
	t.Helper()
	next := drivertest.Through(t, server.URL)
	done := make(chan struct{}, 100)
	return drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		before()
		// With one that can't be cancelled at all, the proxy would look whether its client is still there.
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
		done <- struct{}{}
	}), done
}

// TestALateCallDoesNotUndoARegistration has a call land that its caller has given up, after the pod was put back.
func TestALateCallDoesNotUndoARegistration(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	expect.Each(t, map[string]func(*driver.Registry, context.Context, registry.Instance) error{
		"FailOver": (*driver.Registry).FailOver, "Deregister": (*driver.Registry).Deregister,
	}, func(t *testing.T, late func(*driver.Registry, context.Context, registry.Instance) error) {
		const change = 2 // the first request reads the entry
		var requests atomic.Int64
		held, release := make(chan struct{}), make(chan struct{})
		proxy, landed := intercept(t, server, func() {
			if requests.Add(1) == change {
				close(held)
				<-release
			}
		})
		d := openFor(t, server)
		must(t, d.Register, pod(t, 1))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-held
			cancel()
		}()
		if err := late(openOn(t, server, "rollcall-", proxy), ctx, pod(t, 1)); !errors.Is(err, context.Canceled) {
			t.Fatalf("got error %v, want that of the context", err)
		}
		must(t, d.Register, pod(t, 1))
		close(release)
		for range change {
			<-landed
		}
		expectHealthy(t, server, "after the late call", pod(t, 1).Service, pod(t, 1))
		must(t, d.Deregister, pod(t, 1))
	})
}

func servicesOf(t *testing.T, server *consul.Server, node string) (services any) {
	t.Helper()
	path := "/v1/catalog/node-services/" + node + "?consistent"
	expect.NoError(t, server.Do(t.Context(), http.MethodGet, path, nil, &services))
	return services
}

// nodeOf returns the node that an instance stands under.
func nodeOf(t *testing.T, server *consul.Server, in registry.Instance) string {
	t.Helper()
	entries, err := health(t.Context(), server, in.Service, false)
	expect.NoError(t, err)
	for _, e := range entries {
		if e.Service.Address == in.Address && e.Service.Port == in.Port {
			return e.Node.Node
		}
	}
	t.Fatalf("%s at %s is not in the catalog", in.Service, in.Endpoint())
	return ""
}

// TestTheNodeOfAnAgentIsNeverWritten has a prefix that makes the name of the server's own node, for some addresses.
func TestTheNodeOfAnAgentIsNeverWritten(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	before := servicesOf(t, server, consul.Node)
	const addresses = 200 // and one more, which is none of those
	prefix := strings.TrimRight(consul.Node, "0123456789")
	d := openOn(t, server, prefix, "")
	var refused []registry.Instance
	for n := range addresses {
		err := d.Register(t.Context(), pod(t, n))
		if err == nil {
			continue
		}
		refused = append(refused, pod(t, n))
		drivertest.Refused(t, "the node is another's", err, "options.nodePrefix", "")
	}
	if len(refused) == 0 || len(refused) > addresses/4 {
		t.Fatalf("%d of %d addresses were refused, want those of one node of many", len(refused), addresses)
	}
	errs := d.Batch(t.Context(), []registry.Change{
		{Instance: pod(t, addresses), State: registry.InService}, {Instance: refused[0], State: registry.InService},
	})
	expect.Code(t, registry.CodeNotApplied, errs[0], "the change in a batch with the refused one")
	drivertest.Refused(t, "the node is another's", errs[1], "options.nodePrefix", "")
	must(t, d.FailOver, refused...)
	must(t, d.Deregister, refused...)
	got, err := d.List(t.Context(), t.Name())
	if err != nil || len(got) != addresses-len(refused) {
		t.Errorf("List: got %d entries, %v; want %d", len(got), err, addresses-len(refused))
	}
	if diff := cmp.Diff(before, servicesOf(t, server, consul.Node)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestAnEmptyNodeThatIsNotOursStays has a node with our name, which other tools make for hosts that have no services yet.
func TestAnEmptyNodeThatIsNotOursStays(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d := openOn(t, server, prefix, "")
	must(t, d.Register, pod(t, 1))
	node := nodeOf(t, server, pod(t, 1))
	must(t, d.Deregister, pod(t, 1))
	write(t, server, object{"Node": object{"Verb": "set", "Node": object{"Node": node, "Address": "10.9.0.1"}}})
	must(t, openOn(t, server, prefix, "").Deregister, pod(t, 1))
	expectNodes(t, server, prefix, 1, "we have not made it")
}

// TestForeignChecksAreNoState has a person add a check to our service, for maintenance perhaps. To
// register it again and again would not help.
func TestForeignChecksAreNoState(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d := openOn(t, server, prefix, "")
	must(t, d.Register, pod(t, 1))
	id := fmt.Sprintf("%s-%s-%d", pod(t, 1).Service, pod(t, 1).Address, pod(t, 1).Port)
	write(t, server, object{"Check": object{"Verb": "set", "Check": object{
		"Node": nodeOf(t, server, pod(t, 1)), "CheckID": "maintenance", "Name": "Maintenance", "Status": "critical",
		"ServiceID": id,
	}}})
	expectHealthy(t, server, "while the other check fails", pod(t, 1).Service)
	got, err := d.List(t.Context(), t.Name())
	if err != nil || len(got) != 1 || got[0].State != registry.InService {
		t.Errorf("List: got %v, %v; want our pod in service", got, err)
	}
	must(t, d.Deregister, pod(t, 1))
	expectNodes(t, server, prefix, 0, "the other check goes with the service")
}

// TestForeignEntryUnderTheNodeIsSpared has a person write below Rollcall's node, against the rules.
func TestForeignEntryUnderTheNodeIsSpared(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d := openOn(t, server, prefix, "")
	must(t, d.Register, pod(t, 1))
	node := nodeOf(t, server, pod(t, 1))
	write(t, server, object{"Service": object{"Verb": "set", "Node": node, "Service": object{
		"ID": "stranger", "Service": "stranger", "Address": "10.9.0.9", "Port": 80,
	}}})
	if got, err := d.List(t.Context(), t.Name()); err != nil || len(got) != 1 {
		t.Errorf("List: got %v, %v; want our pod alone", got, err)
	}
	must(t, d.Deregister, pod(t, 1))
	expectNodes(t, server, prefix, 1, "it has a service")
	given, err := health(t.Context(), server, "stranger", true)
	if err != nil || !slices.ContainsFunc(given, func(e healthEntry) bool { return e.Node.Node == node }) {
		t.Errorf("got %v, %v; want what is not ours still there", given, err)
	}
}

// TestEntryThatAnotherWroteAnew has a person write Rollcall's entry without what it is known by. Clients are given it until that
// person removes it.
func TestEntryThatAnotherWroteAnew(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d := openOn(t, server, prefix, "")
	in := pod(t, 1)
	must(t, d.Register, in)
	write(t, server, object{"Service": object{"Verb": "set", "Node": nodeOf(t, server, in), "Service": object{
		"ID": fmt.Sprintf("%s-%s-%d", in.Service, in.Address, in.Port), "Service": in.Service, "Address": in.Address, "Port": in.Port,
	}}})
	for state, err := range map[string]error{"out of service": d.FailOver(t.Context(), in), "absent": d.Deregister(t.Context(), in)} {
		expect.Code(t, registry.CodeForeignEntry, err, "%s: another's entry is there", state)
	}
	must(t, d.Register, in)
	must(t, d.Deregister, in)
}

// write makes a transaction past the driver.
func write(t *testing.T, server *consul.Server, ops ...object) {
	t.Helper()
	expect.NoError(t, server.Do(t.Context(), http.MethodPut, "/v1/txn", ops, nil))
}
