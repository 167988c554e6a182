package zookeeper_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
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
			if diff := cmp.Diff(again, written); diff != "" {
				t.Errorf("Curator writes it differently (-curator +rollcall):\n%s", diff)
			}
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
	if state, err := d.Get(t.Context(), in); err != nil || state != registry.Foreign {
		t.Errorf("Get: got %q, %v; want %q: readers are given Curator's entry", state, err, registry.Foreign)
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
			if registry.CodeOf(call) != registry.CodeTerminal {
				t.Errorf("service %q: got error %v, want a terminal one", impossible, call)
			}
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
		if registry.CodeOf(err) != registry.CodeForeignEntry {
			t.Errorf("%s: got error %v, want one that says that another's entry is there", state, err)
		}
	}
	expect.NoError(t, d.Register(t.Context(), in))
	expect.NoError(t, d.Deregister(t.Context(), in))
}
