package zookeeper_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// described has all that an instance can have.
func described(n int) registry.Instance {
	in := pod(n)
	in.Weight, in.Zone, in.Metadata = 200, "eu-1a", map[string]string{"version": "v1", "team": "<a & b>"}
	return in
}

// mark is what stands in the payload of a described instance.
func mark(in registry.Instance) map[string]any {
	all := map[string]any{}
	for key, value := range in.Meta() {
		all[key] = value
	}
	return all
}

// seen is what a reader should see of an instance.
func seen(in registry.Instance, payload any) zookeeper.Seen {
	return zookeeper.Seen{
		Name: in.Service, ID: "rollcall-" + in.Endpoint(), Address: in.Address, Port: in.Port,
		URI: "http://" + in.Endpoint(), Type: "PERMANENT", Enabled: true, Payload: payload,
	}
}

func expectSeen(t *testing.T, got []zookeeper.Seen, want ...zookeeper.Seen) {
	t.Helper()
	byID := func(all []zookeeper.Seen) map[string]zookeeper.Seen {
		ids := map[string]zookeeper.Seen{}
		for _, s := range all {
			ids[s.ID] = s
		}
		return ids
	}
	if diff := cmp.Diff(byID(want), byID(got)); diff != "" || len(got) != len(want) {
		t.Fatalf("the reader sees %d instances (-want +got):\n%s", len(got), diff)
	}
}

// A reader of every payload class finds the instance when Register has returned, and no more when FailOver or Deregister
// has, with the defaults.
func TestCuratorFollows(t *testing.T) {
	t.Parallel()
	four, six := described(1), described(2)
	six.Address = "fd00:10:244::1"
	for name, tc := range map[string]struct {
		class, payload string
		sees           func(in registry.Instance) any
		inURLs         bool // clients put the address into URLs as it is
	}{
		"no payload, read by anybody":   {zookeeper.PayloadObject, "none", func(registry.Instance) any { return nil }, false},
		"no payload, read by Void":      {zookeeper.PayloadVoid, "none", func(registry.Instance) any { return nil }, false},
		"no payload, read by Map":       {zookeeper.PayloadMap, "none", func(registry.Instance) any { return nil }, false},
		"no payload, read by Spring":    {zookeeper.PayloadSpring, "none", func(registry.Instance) any { return nil }, false},
		"map, read by Map":              {zookeeper.PayloadMap, "map", func(in registry.Instance) any { return mark(in) }, false},
		"map, read by anybody":          {zookeeper.PayloadObject, "map", func(in registry.Instance) any { return mark(in) }, false},
		"Spring's payload, its readers": {zookeeper.PayloadSpring, "spring", springPayload, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := "/" + strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)
			s := shared.Use(t)
			d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", base, "payload", tc.payload)})
			reader := readers.Use(t).View(t, s.Endpoint, base, tc.class)
			expectSeen(t, reader.Instances("web"))

			sees := func(in registry.Instance) zookeeper.Seen {
				one := seen(in, tc.sees(in))
				if tc.inURLs {
					one.Address = driverkit.InURL(in.Address)
				}
				return one
			}
			expect.NoError(t, d.Register(t.Context(), four))
			expect.NoError(t, d.Register(t.Context(), six))
			expectSeen(t, reader.Instances("web"), sees(four), sees(six))
			expect.Equal(t, []string{"web"}, reader.Names(), "the names of the services")
			expect.NoError(t, d.FailOver(t.Context(), four))
			expectSeen(t, reader.Instances("web"), sees(six))
			expect.NoError(t, d.Register(t.Context(), four))
			expectSeen(t, reader.Instances("web"), sees(four), sees(six))
			expect.NoError(t, d.Deregister(t.Context(), six))
			expectSeen(t, reader.Instances("web"), sees(four))
		})
	}
}

func springPayload(in registry.Instance) any {
	metadata := mark(in)
	metadata["instance_status"] = "UP"
	return map[string]any{"id": "rollcall-" + in.Endpoint(), "name": in.Service, "metadata": metadata}
}

// Each payload has readers that can't even list the service because of it. The docs say so, and the default has none.
func TestPayloadsThatReadersFailAt(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	for _, payload := range []string{"map", "spring"} {
		d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", "/fails-"+payload, "payload", payload)})
		expect.NoError(t, d.Register(t.Context(), pod(1)))
	}
	type row struct{ class, payload string }
	expect.Each(t, map[string]row{
		"a map for Void":              {zookeeper.PayloadVoid, "map"},
		"a map for Spring":            {zookeeper.PayloadSpring, "map"},
		"Spring's for Void":           {zookeeper.PayloadVoid, "spring"},
		"Spring's for a map's reader": {zookeeper.PayloadMap, "spring"},
	}, func(t *testing.T, tc row) {
		reader := readers.Use(t).View(t, s.Endpoint, "/fails-"+tc.payload, tc.class)
		if got := reader.InstancesErr("web"); !strings.Contains(got, "ClassCastException") {
			t.Errorf("reading: got error %q, want a ClassCastException; correct the docs if this works now", got)
		}
	})
}

// Spring Cloud's load balancer leaves out what has another status than UP; Curator gives it to its users as before.
func TestSpringHeedsTheStatus(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/spring-status"
	d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", base, "payload", "spring", "outOfRotation", "status")})
	reader := readers.Use(t).View(t, s.Endpoint, base, zookeeper.PayloadSpring)
	in := described(1)
	expect.NoError(t, d.Register(t.Context(), in))
	want := in.Meta()
	want["instance_status"] = "UP"
	got := reader.Spring("web")
	if len(got) != 1 || got[0].Address != in.Address || got[0].Port != in.Port || got[0].URI != "http://"+in.Endpoint() {
		t.Fatalf("Spring sees %+v, want the instance", got)
	}
	expect.Equal(t, want, got[0].Metadata, "its metadata")
	expect.NoError(t, d.FailOver(t.Context(), in))
	if got := reader.Spring("web"); len(got) != 0 {
		t.Fatalf("Spring sees %+v after FailOver, want nothing", got)
	}
	if got := reader.Instances("web"); len(got) != 1 {
		t.Errorf("Curator sees %+v after FailOver, want the instance: it knows no status", got)
	}
	expect.NoError(t, d.Register(t.Context(), in))
	if got := reader.Spring("web"); len(got) != 1 {
		t.Fatalf("Spring sees %+v after Register, want the instance", got)
	}
}

// Curator's ServiceProvider leaves out what is not enabled; ServiceDiscovery gives it to its users as before.
func TestServiceProviderHeedsEnabled(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/provider-enabled"
	d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", base, "outOfRotation", "enabled")})
	reader := readers.Use(t).View(t, s.Endpoint, base, zookeeper.PayloadVoid)
	provided := func(want int) {
		t.Helper()
		expect.Soon(t, "the provider, which has a cache", func() error {
			if got := reader.Provided("web"); len(got) != want {
				return fmt.Errorf("it gives %d instances, want %d", len(got), want)
			}
			return nil
		})
	}
	expect.NoError(t, d.Register(t.Context(), pod(1)))
	expect.NoError(t, d.Register(t.Context(), pod(2)))
	provided(2)
	expect.NoError(t, d.FailOver(t.Context(), pod(1)))
	provided(1)
	if got := reader.Instances("web"); len(got) != 2 {
		t.Errorf("queryForInstances gives %+v after FailOver, want both: it takes no notice", got)
	}
	expect.NoError(t, d.Register(t.Context(), pod(1)))
	provided(2)
}

// What Curator makes of an entry when it reads and writes it is what stands there.
func TestEntriesAreWrittenAsCuratorWritesThem(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	for name, tc := range map[string]struct {
		class, payload, out string
		compatible          bool
		ours                bool // Curator drops our field beside its own
	}{
		"none":                 {zookeeper.PayloadVoid, "none", "delete", true, true},
		"map":                  {zookeeper.PayloadMap, "map", "delete", true, false},
		"spring":               {zookeeper.PayloadSpring, "spring", "delete", true, false},
		"spring with status":   {zookeeper.PayloadSpring, "spring", "status", true, false},
		"spring with enabled":  {zookeeper.PayloadSpring, "spring", "enabled", false, false},
		"nothing with enabled": {zookeeper.PayloadVoid, "none", "enabled", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := "/again-" + strings.ReplaceAll(name, " ", "-")
			d := open(t, registry.Config{
				Endpoint: s.Endpoint, Options: options("base", base, "payload", tc.payload, "outOfRotation", tc.out),
			})
			in := described(1)
			in.Metadata["名前"] = "ünïcödé \"quoted\" \\"
			expect.NoError(t, d.Register(t.Context(), in))
			reader := readers.Use(t).View(t, s.Endpoint, base, tc.class)
			written, again := reader.Again("web", "rollcall-"+in.Endpoint(), tc.compatible)
			if tc.ours {
				before, _, found := strings.Cut(written, `,"metadata":`)
				if !found {
					t.Fatalf("there is no metadata in %s", written)
				}
				written = before + "}"
			}
			expect.Equal(t, again, written, "Curator writes it differently")
		})
	}
}

// What Curator itself has registered is listed as another's. That it is not touched is the suite's.
func TestCuratorsOwnIsForeign(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/beside"
	d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", base)})
	readers.Use(t).View(t, s.Endpoint, base, zookeeper.PayloadObject).Register("web", "of-its-own")
	in := pod(1)
	in.Address, in.Port = "192.0.2.1", 80 // that of Curator's own instance
	want := []registry.Entry{
		{Instance: registry.Instance{Service: in.Service, Address: in.Address, Port: in.Port}, State: registry.Foreign},
	}
	expect.Soon(t, "the list to have it", func() error { // Curator's entries end with its session, and it makes them again
		entries, err := d.List(t.Context(), in.Cluster)
		expect.NoError(t, err)
		if diff := cmp.Diff(want, entries); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	drivertest.Says(t, "readers are given Curator's entry", d, in, registry.Foreign)
}

// TestManyAreReadBack after a cut: a question about the service reads the entries of others, and the names only if a node came or went.
func TestManyAreReadBack(t *testing.T) {
	t.Parallel()
	const base, pods, foreign = "/many", 84, 3
	s := shared.Use(t)
	p, conn := startProxy(t, s.Endpoint), connect(t, s.Endpoint)
	for n := range foreign {
		addNode(t, conn, base, fmt.Sprint("app-", n), pod(pods+n), nil)
	}
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: p.endpoint, Options: options("base", base)})
	var changes []registry.Change
	for n := range pods {
		changes = append(changes, registry.Change{Instance: pod(n), State: registry.InService})
	}
	expect.NoError(t, errors.Join(d.Batch(t.Context(), changes)...))
	p.mu.Lock()
	clear(p.asked)
	p.mu.Unlock()
	var group errgroup.Group
	for n := range pods {
		group.Go(func() error {
			state, err := d.Get(t.Context(), pod(n))
			if err == nil && state != registry.InService {
				err = fmt.Errorf("pod %d is %s", n, state)
			}
			return err
		})
	}
	expect.NoError(t, group.Wait())
	p.mu.Lock()
	defer p.mu.Unlock()
	if names := p.asked[opGetChildren2]; names != 1 {
		t.Errorf("the names of all entries were read %d times, want once: no node came or went", names)
	}
	questions := p.asked[opExists]
	expect.Equal(t, pods+foreign*questions, p.asked[opGetData], "entries read: the pods' own, and with each of %d questions those of others", questions)
}

// TestOthersAreSeenAtOnce, however they come to have the pod's address.
func TestOthersAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	const base = "/seen"
	s, in, elsewhere := shared.Use(t), pod(1), pod(2)
	d, conn := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", base)}), connect(t, s.Endpoint)
	expect.NoError(t, d.Register(t.Context(), in))
	app := base + "/" + in.Service + "/app"
	content := func(at registry.Instance, status string) []byte {
		data, err := dataOf(at, "app", nil)
		expect.NoError(t, err)
		if status == "" {
			return data
		}
		return bytes.Replace(data, []byte(`"payload":null`), []byte(`"payload":{"@class":`+
			`"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","metadata":{"instance_status":"`+status+`"}}`), 1)
	}
	write := func(node string, data []byte) {
		_, err := conn.Set(node, data, -1)
		if errors.Is(err, zk.ErrNoNode) {
			_, err = conn.Create(node, data, zk.FlagPersistent, openACL())
		}
		expect.NoError(t, err)
	}
	remove := func() { expect.NoError(t, conn.Delete(app, -1)) }
	for _, step := range []struct {
		reason string
		do     func()
		want   registry.State
	}{
		{"there is none", func() {}, registry.InService},
		{"one comes", func() { write(app, content(in, "")) }, registry.Foreign},
		{"it moves away in its node", func() { write(app, content(elsewhere, "")) }, registry.InService},
		{"it moves back in its node", func() { write(app, content(in, "")) }, registry.Foreign},
		{"it is out by Spring's status", func() { write(app, content(in, "OUT_OF_SERVICE")) }, registry.InService},
		{"it is up", func() { write(app, content(in, "UP")) }, registry.Foreign},
		{"it goes", remove, registry.InService},
		{"a node of its name is another's", func() {
			write(app, content(elsewhere, ""))
			remove()
			write(app, content(in, ""))
		}, registry.Foreign},
		{"the pod's own node is overwritten", func() {
			remove()
			write(path(base, in), content(in, ""))
		}, registry.Foreign},
	} {
		step.do()
		drivertest.Says(t, step.reason, d, in, step.want)
	}
}

// Names that ZooKeeper takes stand there as they are, so that Curator's readers find them.
func TestOddNamesAreFound(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/odd"
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: s.Endpoint, Options: options("base", base)})
	reader := readers.Use(t).View(t, s.Endpoint, base, zookeeper.PayloadVoid)
	for i, odd := range []string{
		"a b", "a+b", "a%20b", "a?b=c&d=e#f", "a;b", "a:b@c", "ünïcödé", "名前", "'a'", `"a"`, `a\b`, "{a}", "$(a)", "a*", "<a&b>", "...", "..a", "A",
		strings.Repeat("long-", 50),
	} {
		in := pod(i)
		in.Service = odd
		expect.NoError(t, d.Register(t.Context(), in))
		expectSeen(t, reader.Instances(odd), seen(in, nil))
	}
	for _, impossible := range []string{"a/b", "/a", "a/", "..", ".", "🦆", "a\nb", "\x7f", "\ufffd"} {
		in := pod(1)
		in.Service = impossible
		for _, call := range []error{
			d.Register(t.Context(), in), d.FailOver(t.Context(), in), d.Deregister(t.Context(), in),
			d.Batch(t.Context(), []registry.Change{{Instance: in, State: registry.InService}})[0],
		} {
			expect.Code(t, registry.CodeTerminal, call, "service %q", impossible)
		}
	}
}

// A person may write an entry anew without what Rollcall knows it by. Clients are given it until that person removes it.
func TestEntryThatAnotherWroteAnew(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", "/anew")})
	in := pod(1)
	expect.NoError(t, d.Register(t.Context(), in))
	_, err := connect(t, s.Endpoint).Set(path("/anew", in), fmt.Appendf(nil, `{"address":%q,"port":%d}`, in.Address, in.Port), -1)
	expect.NoError(t, err)
	for state, err := range map[string]error{
		"out of service": d.FailOver(t.Context(), in),
		"absent":         d.Deregister(t.Context(), in),
		"in a batch":     d.Batch(t.Context(), []registry.Change{{Instance: in, State: registry.Absent}})[0],
	} {
		expect.Code(t, registry.CodeForeignEntry, err, "%s: another's entry is there", state)
	}
	expect.NoError(t, d.Register(t.Context(), in))
	expect.NoError(t, d.Deregister(t.Context(), in))
}
