package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestOf(t *testing.T) {
	t.Parallel()
	const now, former, other = "10.0.0.2", "10.0.0.1", "fd00::2"
	at := func(registry, service, address string) lifecycle.Key {
		return lifecycle.Key{Registry: registry, Service: lifecycle.Service(service), Address: address, Port: 80}
	}
	web, old := at("default", "web", now), at("default", "web", former)
	shop, blue := at("default", "shop", now), at("blue", "web", now)
	byAppAtOther := at("default", "web", other).By(lifecycle.Application)
	called, formerCalled := at("pods", "web", now).By(lifecycle.Application), at("pods", "shop", now).By(lifecycle.Application)
	byApp, inCapitals := web.By(lifecycle.Application), at("default", "WEB", now).By(lifecycle.Application)
	type row struct {
		reason    string
		want      lifecycle.Want
		row       lifecycle.Row
		noAddress bool
		arrived   bool
		targets   []lifecycle.Key
		instances []lifecycle.Key
		// out are those that a registry has acknowledged to be out of service.
		out []lifecycle.Key
		// marks are the names of their registries that entries carry.
		marks map[lifecycle.Key]string
		plan  []string
	}
	expect.Each(t, map[string]row{
		"joins": {
			reason: "another pod may have the former address soon, and the old service is left when clients find the new one",
			want:   lifecycle.InService, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{shop, old, web},
			plan: []string{`former: Absent service "web" at 10.0.0.1:80`, `present: InService service "web" at 10.0.0.2:80 of default`,
				`departing: Absent service "shop" at 10.0.0.2:80`},
		},
		"leaves": {
			reason: "the entry goes under whichever name of the registry it was written",
			want:   lifecycle.Absent, row: lifecycle.RowPreparingDelete,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{web, blue},
			plan: []string{`present: Absent service "web" at 10.0.0.2:80`, `departing: Absent service "web" at 10.0.0.2:80 in registry "blue"`},
		},
		"is updated": {
			reason: "it stays registered, and out of rotation everywhere", want: lifecycle.OutOfService, row: lifecycle.RowPreparingUpdate,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{web, shop},
			plan: []string{`present: OutOfService service "web" at 10.0.0.2:80`, `departing: Absent service "shop" at 10.0.0.2:80`},
		},
		"is updated, and has left by then": {
			reason: "clients are given it nowhere, and no hook is to wait for a registry that it departs from",
			want:   lifecycle.OutOfService, row: lifecycle.RowPreparingUpdate,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{old, shop, blue}, out: []lifecycle.Key{old, blue},
			plan: []string{`former: Absent service "web" at 10.0.0.1:80`, `present: OutOfService service "web" at 10.0.0.2:80`,
				`departing: OutOfService service "web" at 10.0.0.2:80 in registry "blue" of blue`, `departing: Absent service "shop" at 10.0.0.2:80`},
		},
		"was updated, and has left by then": {
			reason: "nothing is left behind", want: lifecycle.InService, row: lifecycle.RowUpdated,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{shop}, out: []lifecycle.Key{shop},
			plan: []string{`present: InService service "web" at 10.0.0.2:80 of default`, `departing: Absent service "shop" at 10.0.0.2:80`},
		},
		"is updated, and left to its application": {
			reason: "the application's entry may show only once Rollcall's is gone", want: lifecycle.OutOfService, row: lifecycle.RowPreparingUpdate,
			targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{web}, out: []lifecycle.Key{web},
			plan: []string{`present: OutOfService the application's own entry of service "web" at 10.0.0.2:80`,
				`departing: Absent service "web" at 10.0.0.2:80 of default`},
		},
		"is left to its application": {
			reason: "Rollcall's entry goes when clients are given the application's", want: lifecycle.InService, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{web},
			plan: []string{`present: InService the application's own entry of service "web" at 10.0.0.2:80 of default`,
				`departing: Absent service "web" at 10.0.0.2:80 of default`},
		},
		"has its application's entry at another of its addresses": {
			reason: "neither is a former one", want: lifecycle.InService, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{byAppAtOther}, instances: []lifecycle.Key{byApp, byAppAtOther, at("default", "web", other)},
			plan: []string{`present: InService the application's own entry of service "web" at [fd00::2]:80 of default`,
				`departing: Absent service "web" at [fd00::2]:80 of default`,
				`departing: Absent the application's own entry of service "web" at 10.0.0.2:80`},
		},
		"has a name that changed in case": {
			reason: "Consul and Eureka take both names for one: what takes out the former one takes the pod out",
			want:   lifecycle.InService, row: lifecycle.RowNormal, targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{inCapitals},
			plan: []string{`present: InService the application's own entry of service "web" at 10.0.0.2:80 of default`,
				`spared: the application's own entry of service "WEB" at 10.0.0.2:80`},
		},
		"has an application that is called by another service": {
			reason: "it would leave as what it has just joined as, and there is nothing else to take out later",
			want:   lifecycle.InService, row: lifecycle.RowUpdated, targets: []lifecycle.Key{called}, instances: []lifecycle.Key{formerCalled},
			plan: []string{`present: InService the application's own entry of service "web" at 10.0.0.2:80 in registry "pods" of pods`},
		},
		"has an application that is called by another service, and stays": {
			reason: "it would leave", want: lifecycle.Keep, row: lifecycle.RowNormal, arrived: true,
			targets: []lifecycle.Key{called}, instances: []lifecycle.Key{formerCalled},
		},
		"has an application that is called in place of its entry": {
			reason: "blue's entry may be the one that it writes itself", want: lifecycle.InService, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{called}, instances: []lifecycle.Key{blue.By(lifecycle.Application)},
			plan: []string{`present: InService the application's own entry of service "web" at 10.0.0.2:80 in registry "pods" of pods`,
				`spared: the application's own entry of service "web" at 10.0.0.2:80 in registry "blue"`},
		},
		"moves to another registry, where its application registers": {
			reason: "blue may be the same server, and the entry has no mark", want: lifecycle.Keep, row: lifecycle.RowNormal, arrived: true,
			targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{blue.By(lifecycle.Application)},
			plan: []string{`spared: the application's own entry of service "web" at 10.0.0.2:80 in registry "blue"`},
		},
		"moves to another registry, where its application was put back": {
			reason: "the last call for blue did not take it out", want: lifecycle.InService, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{blue.By(lifecycle.Application)},
			marks: map[lifecycle.Key]string{blue.By(lifecycle.Application): "blue"},
			plan: []string{`present: InService the application's own entry of service "web" at 10.0.0.2:80 of default`,
				`spared: the application's own entry of service "web" at 10.0.0.2:80 in registry "blue"`},
		},
		"has moved to another registry, and was updated": {
			reason: "it was taken out in blue with the pod, and is not recorded any more", want: lifecycle.InService, row: lifecycle.RowUpdated,
			targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{blue.By(lifecycle.Application)}, out: []lifecycle.Key{blue.By(lifecycle.Application)},
			plan: []string{`present: InService the application's own entry of service "web" at 10.0.0.2:80 of default`},
		},
		"has moved to another registry, and is updated": {
			reason: "another server's clients may be given it by the entry in blue", want: lifecycle.OutOfService, row: lifecycle.RowPreparingUpdate,
			targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{blue.By(lifecycle.Application)},
			plan: []string{`present: OutOfService the application's own entry of service "web" at 10.0.0.2:80`,
				`departing: Absent the application's own entry of service "web" at 10.0.0.2:80 in registry "blue" of blue`},
		},
		"has a name that changed in case, and leaves": {
			reason: "Nacos tells the names apart",
			want:   lifecycle.OutOfService, row: lifecycle.RowPreparingUpdate,
			targets: []lifecycle.Key{byApp}, instances: []lifecycle.Key{inCapitals},
			plan: []string{`present: OutOfService the application's own entry of service "web" at 10.0.0.2:80`,
				`departing: Absent the application's own entry of service "WEB" at 10.0.0.2:80`},
		},
		"moves to another registry": {
			reason: "blue may be the same server, where the entry is default's by then",
			want:   lifecycle.InService, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{blue},
			plan: []string{`present: InService service "web" at 10.0.0.2:80 of default`,
				`departing: Absent service "web" at 10.0.0.2:80 in registry "blue" of blue`},
		},
		"moves to another registry, and the one before was renamed": {
			reason: "the entry has the former name or the new one, and would be spared under the other",
			want:   lifecycle.InService, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{blue}, marks: map[lifecycle.Key]string{blue: "green"},
			plan: []string{`present: InService service "web" at 10.0.0.2:80 of default`,
				`departing: Absent service "web" at 10.0.0.2:80 in registry "blue"`},
		},
		"stays": {
			reason: "what is in service and what is not stays so", want: lifecycle.Keep, row: lifecycle.RowNormal, arrived: true,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{web},
		},
		"stays and has not arrived": {
			reason: "clients may find it in the old service alone", want: lifecycle.Keep, row: lifecycle.RowNormal,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{shop, old},
			plan: []string{`former: Absent service "web" at 10.0.0.1:80`},
		},
		"stays and has arrived": {
			reason: "clients find it in the new service", want: lifecycle.Keep, row: lifecycle.RowNormal, arrived: true,
			targets: []lifecycle.Key{web}, instances: []lifecycle.Key{shop},
			plan: []string{`departing: Absent service "shop" at 10.0.0.2:80`},
		},
		"unknown state": {
			reason: "the registry is left as it is", want: lifecycle.Keep, row: lifecycle.RowUnknownState, arrived: true,
			instances: []lifecycle.Key{shop, old},
		},
		"no address": {
			reason: "nothing tells which address is a former one", want: lifecycle.Keep, row: lifecycle.RowNormal, noAddress: true, arrived: true,
			instances: []lifecycle.Key{shop, old},
		},
	}, func(t *testing.T, tc row) {
		pod := &lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: now, PodIPs: []corev1.PodIP{{IP: now}, {IP: other}}}}
		tracked := tracker.New().Open(lifecycle.PodID{})
		f := Facts{Pod: pod, Undescribed: !tc.arrived, Record: lifecycle.Record{Instances: tc.instances}, Configuration: all{}}
		for _, in := range tc.out {
			tracked.Begin(in, lifecycle.OutOfService, target(in).Instance, time.Now())
			tracked.Acknowledged(in, time.Now())
		}
		for in, mark := range tc.marks {
			carries := target(in).Instance
			carries.Registry = mark
			tracked.Begin(in, lifecycle.InService, carries, time.Now())
			tracked.Acknowledged(in, time.Now())
		}
		if tc.noAddress {
			f.Pod, f.AddressUnknown = &lifecycle.Pod{}, true
		}
		for _, in := range tc.targets {
			one := target(in)
			one.Instance.Registry = in.Registry
			f.Targets = append(f.Targets, one)
			if tc.arrived {
				tracked.Begin(in, lifecycle.InService, one.Instance, time.Now())
				tracked.Acknowledged(in, time.Now())
			}
		}
		f.Known = tracked.Known()
		if diff := cmp.Diff(tc.plan, described(Of(f, lifecycle.Decision{Row: tc.row, Want: tc.want}))); diff != "" {
			t.Errorf("-want +got:\n%s\nreason: %s", diff, tc.reason)
		}
	})
}

func TestConfirms(t *testing.T) {
	t.Parallel()
	const in, out, absent, foreign = registry.InService, registry.OutOfService, registry.Absent, registry.Foreign
	type row struct {
		reason      string
		want        lifecycle.Want
		writer      lifecycle.Writer
		leavesToApp bool
		confirm     []registry.State
	}
	expect.Each(t, map[string]row{
		"in service":     {"nothing else gives it to clients", lifecycle.InService, lifecycle.Rollcall, false, []registry.State{in}},
		"out of service": {"some registries know no such state", lifecycle.OutOfService, lifecycle.Rollcall, false, []registry.State{out, absent}},
		"absent":         {"an entry that is out is one", lifecycle.Absent, lifecycle.Rollcall, false, []registry.State{absent}},
		"absent, application's": {"what the application wrote is never removed", lifecycle.Absent, lifecycle.Application, false,
			[]registry.State{out, absent}},
		"absent, left to the application": {"clients are given the application's", lifecycle.Absent, lifecycle.Rollcall, true,
			[]registry.State{absent, foreign}},
	}, func(t *testing.T, tc row) {
		c := Row{Target: target(lifecycle.Key{Registry: "default", Writer: tc.writer}), Want: tc.want, LeftToApp: tc.leavesToApp}
		for _, state := range []registry.State{in, out, absent, foreign} {
			if got, want := c.Confirms(state), slices.Contains(tc.confirm, state); got != want {
				t.Errorf("%s: got %t, want %t\nreason: %s", state, got, want, tc.reason)
			}
		}
	})
}

func TestAsked(t *testing.T) {
	t.Parallel()
	for want, state := range map[lifecycle.Want]registry.State{
		lifecycle.InService: registry.InService, lifecycle.OutOfService: registry.OutOfService, lifecycle.Absent: registry.Absent,
	} {
		if got := (Row{Want: want}).Asked().State; got != state {
			t.Errorf("where %s is wanted, the registry is asked for %q, want %q", want, got, state)
		}
	}
}

// all has every registry.
func TestEntry_isCalledAsTarget(t *testing.T) {
	t.Parallel()
	other := called(here)
	other.Service = "shop"
	own := called(here).By("")
	for reason, tc := range map[string]struct {
		in, belongs lifecycle.Key
		is          bool
	}{
		"one application answers by whatever name":     {other, called(here), true},
		"a list has an entry for each name":            {apps("shop", here), apps("web", here), false},
		"where the pod belongs, nothing is called":     {called(here), apps("web", here), false},
		"what Rollcall wrote is not the application's": {own, called(here), false},
	} {
		if got := steer(belongsIn(tc.belongs)).f.entry(tc.in).isCalledAsTarget(); got != tc.is {
			t.Errorf("%s: got %t", reason, got)
		}
	}
}

func TestEntry_staysUnderAnotherName(t *testing.T) {
	t.Parallel()
	renamed := mine("web", here)
	renamed.Registry = "new"
	for reason, tc := range map[string]struct {
		in, belongs lifecycle.Key
		stays       bool
	}{
		"two names may be one server":              {mine("web", here), renamed, true},
		"the service is another, and so the entry": {mine("shop", here), renamed, false},
		"it is where the pod belongs":              {mine("web", here), mine("web", here), false},
	} {
		if got := steer(belongsIn(tc.belongs)).f.entry(tc.in).staysUnderAnotherName(); got != tc.stays {
			t.Errorf("%s: got %t", reason, got)
		}
	}
}

type all struct{}

func (all) Has(string) bool { return true }

func (all) CallsPods(registry string) bool { return registry == "pods" }

func (all) Lists(registry string) bool { return registry != "silent" }

func (all) ReaderLag(registry string) time.Duration {
	return map[string]time.Duration{"slow": 5 * time.Second}[registry]
}

func (all) MayBeOne(a, b lifecycle.Key) bool {
	same := strings.EqualFold(string(a.Service), string(b.Service)) && a.Address == b.Address
	return a.ByApp() && b.ByApp() && (a.Registry == "pods" || b.Registry == "pods" || same)
}

func target(in lifecycle.Key) tracker.Target {
	return tracker.Target{
		Registry: in.Registry, Writer: in.Writer, Instance: registry.Instance{Service: string(in.Service), Address: in.Address, Port: in.Port},
	}
}

func described(p Plan) (lines []string) {
	for kind, changes := range map[string][]Row{"former": p.Former, "present": p.Present, "departing": p.Departing} {
		for _, c := range changes {
			line := fmt.Sprintf("%s: %s %s", kind, c.Want, c)
			if c.Instance.Registry != "" {
				line += " of " + c.Instance.Registry
			}
			lines = append(lines, line)
		}
	}
	for _, in := range p.Spared {
		lines = append(lines, fmt.Sprintf("spared: %s", Row{Target: target(in)}))
	}
	order := []string{"f", "p", "d", "s"}
	slices.SortStableFunc(lines, func(a, b string) int { return slices.Index(order, a[:1]) - slices.Index(order, b[:1]) })
	return lines
}
