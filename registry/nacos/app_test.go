package nacos_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// registersItself puts an application's entry into the fake.
func (f *fake) registersItself(in registry.Instance, healthy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.posted[in.Address+" "+fmt.Sprint(in.Port)] = url.Values{
		"ip": {in.Address}, "port": {fmt.Sprint(in.Port)}, "clusterName": {"DEFAULT"}, "enabled": {"true"},
		"healthy": {fmt.Sprint(healthy)}, "weight": {"5"}, "metadata": {`{"version":"v1"}`},
	}
}

// TestAppThatIsNotUp waits: it is the application's to put that right.
func TestAppThatIsNotUp(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		has    func(f *fake)
		want   string
	}
	expect.Each(t, map[string]row{
		"not registered": {
			"a person has to learn what was looked for",
			func(*fake) {}, "service web has no instance with IP 10.0.0.1 and port 80 in namespace public, group DEFAULT_GROUP, cluster DEFAULT",
		},
		"unhealthy": {"clients are not given it", func(f *fake) { f.registersItself(drivertest.Pod(1), false) }, "unhealthy"},
		"Rollcall's own": {
			"it is not the application's", func(f *fake) { expect.NoError(t, atVersion(t, f, "v1").Register(t.Context(), drivertest.Pod(1))) },
			"has no instance",
		},
	}, func(t *testing.T, tc row) {
		f := newFake(t, "v1")
		tc.has(f)
		_ = f.requests()
		err := atVersion(t, f, "v1").AppEntries().Register(t.Context(), drivertest.Pod(1))
		expect.Code(t, registry.CodeNotRegistered, err, "%s", tc.reason)
		expect.Error(t, tc.reason, err, tc.want)
		for _, asked := range f.requests() {
			if !strings.HasPrefix(asked, "GET ") {
				t.Errorf("it sent %s, want nothing that changes anything", asked)
			}
		}
	})
}

// TestOwnEntryIsNoApps: a pod whose entry is Rollcall's by now leaves its application's, of which nothing is left.
func TestOwnEntryIsNoApps(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d, in := atVersion(t, f, "v3"), drivertest.Pod(1)
	in.Weight = 5
	expect.NoError(t, d.Register(t.Context(), in))
	_ = f.requests()
	expect.NoError(t, d.AppEntries().FailOver(t.Context(), in))
	expect.NoError(t, d.AppEntries().Deregister(t.Context(), in))
	for _, asked := range f.requests() {
		if !strings.HasPrefix(asked, "GET ") {
			t.Errorf("it sent %s, which changes the weight and the state of Rollcall's entry", asked)
		}
	}
	drivertest.Says(t, "it is none of the application's", d.AppEntries(), in, registry.Absent)
}

// TestAppEntryThatIsOutHoldsNoOther: of a single instance v1 does not tell whether clients are given it.
func TestAppEntryThatIsOutHoldsNoOther(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v1")
	d, in := atVersion(t, f, "v1"), drivertest.Pod(1)
	f.registersItself(in, true)
	for name, spares := range map[string]call{"FailOver": d.FailOver, "Deregister": d.Deregister} {
		expect.Code(t, registry.CodeForeignEntry, spares(t.Context(), in), "%s: clients are given the application's entry", name)
	}
	drivertest.Says(t, "clients are given the application's entry", d, in, registry.Foreign)
	expect.NoError(t, d.AppEntries().FailOver(t.Context(), in))
	expect.NoError(t, d.FailOver(t.Context(), in))
	expect.NoError(t, d.Deregister(t.Context(), in))
	drivertest.Says(t, "clients are not given it", d, in, registry.Absent)
	if got := f.put["10.0.0.1 80"].Get("enabled"); got != "false" {
		t.Errorf("enabled is %q, want it false: clients are given it", got)
	}
	expect.NoError(t, d.Register(t.Context(), in)) // there is one persistent entry at each address
	expectListed(t, d, "it has taken the entry over", in)
}

// TestAppEntryOfAnIPv6Address has the application write all of the groups, as Java does, or have an entry in each spelling.
func TestAppEntryOfAnIPv6Address(t *testing.T) {
	t.Parallel()
	const long, short = "2001:db8:0:0:1:0:0:a", "2001:db8::1:0:0:a"
	expect.Each(t, map[string][]string{"long": {long}, "both": {long, short}}, func(t *testing.T, spellings []string) {
		f, in := newFake(t, "v3"), drivertest.Pod(1)
		for _, in.Address = range spellings {
			f.registersItself(in, true)
		}
		in.Address = short
		apps := atVersion(t, f, "v3").AppEntries()
		for _, step := range []struct {
			change  call
			want    registry.State
			enabled string
		}{
			{apps.FailOver, registry.OutOfService, "false"}, {apps.Register, registry.InService, "true"},
			{apps.Deregister, registry.OutOfService, "false"},
		} {
			expect.NoError(t, step.change(t.Context(), in))
			drivertest.Says(t, "after a change", apps, in, step.want)
			for _, address := range spellings {
				if got := f.put[address+" 80"].Get("enabled"); got != step.enabled {
					t.Errorf("enabled is %q at %s, want %s", got, address, step.enabled)
				}
			}
		}
	})
}

// TestAppEntryOfAnotherNacosCluster is given to clients that name none, and no change within options.cluster takes it out.
func TestAppEntryOfAnotherNacosCluster(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f, in := newFake(t, version), drivertest.Pod(1)
			apps := atVersion(t, f, version).AppEntries()
			f.registersItself(in, true)
			const key = "10.0.0.1 80"
			f.posted[key].Set("clusterName", "GZ")
			get := func(ctx context.Context, in registry.Instance) error { _, err := apps.Get(ctx, in); return err }
			for name, do := range map[string]call{"FailOver": apps.FailOver, "Deregister": apps.Deregister, "Get": get} {
				drivertest.Refused(t, name+" would release hooks", do(t.Context(), in), "options.cluster", "in Nacos cluster GZ")
			}
			err := apps.Register(t.Context(), in)
			expect.Error(t, "a person has to learn where it is", err, "it has one in Nacos cluster GZ")
			expect.Code(t, registry.CodeNotRegistered, err, "Register")
			f.mu.Lock()
			delete(f.posted, key)
			f.mu.Unlock()
			expect.NoError(t, apps.Deregister(t.Context(), in))
		})
	}
}

// TestAppEntryThatReadersDoNotSeeYet has registered itself a moment before it is taken out, under a name as Dubbo makes it, or with an
// address as Java writes it.
func TestAppEntryThatReadersDoNotSeeYet(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]struct {
		reason, address string
		nothing         func(f *fake)
	}{
		"IPv4": {"the entry is read again", "10.0.0.1", func(f *fake) {
			f.once("GET /v3/admin/ns/instance", func(w http.ResponseWriter) { f.problem(w, http.StatusNotFound, 20004, "no ips found") })
		}},
		"IPv6": {"what others have written is asked for again", "2001:db8:0:0:1:0:0:a", func(f *fake) {
			f.once("GET /v3/admin/ns/instance/list", func(w http.ResponseWriter) { f.answer(w, []any{}) })
		}},
	}, func(t *testing.T, tc struct {
		reason, address string
		nothing         func(f *fake)
	}) {
		f, in := newFake(t, "v3"), drivertest.Pod(1)
		in.Service, in.Address = "providers:org.example.Shop:1.0.0:", tc.address
		tc.nothing(f)
		f.registersItself(in, true)
		in.Address = netip.MustParseAddr(tc.address).String()
		expect.NoError(t, atVersion(t, f, "v3").AppEntries().FailOver(t.Context(), in))
		if got := f.put[tc.address+" 80"].Get("enabled"); got != "false" {
			t.Errorf("enabled is %q, want it false: clients are given it, and %s", got, tc.reason)
		}
	})
}
