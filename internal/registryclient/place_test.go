package registryclient

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// placed is a driver that notes which service it is asked about, and in which place. Its Traits come from template.
type placed struct {
	template string
	asked    *[]serviceKey
	entries  []registry.Entry
}

func (p placed) note(in registry.Instance) error {
	*p.asked = append(*p.asked, serviceOf(in))
	return nil
}

func (p placed) Traits() registry.Traits {
	return registry.Traits{PlaceTemplate: p.template, HeartbeatInterval: time.Second}
}
func (p placed) Register(_ context.Context, in registry.Instance) error   { return p.note(in) }
func (p placed) FailOver(_ context.Context, in registry.Instance) error   { return p.note(in) }
func (p placed) Deregister(_ context.Context, in registry.Instance) error { return p.note(in) }
func (p placed) Probe(_ context.Context, in registry.Instance) error      { return p.note(in) }
func (p placed) Heartbeat(_ context.Context, in registry.Instance) error  { return p.note(in) }
func (p placed) Get(_ context.Context, in registry.Instance) (registry.State, error) {
	return registry.Absent, p.note(in)
}
func (p placed) ListPlace(context.Context, string, string) ([]registry.Entry, error) {
	return p.entries, nil
}
func (p placed) AppEntries() registry.AppRegistry { return placedApps{p} }

type placedApps struct{ placed }

func (a placedApps) Register(_ context.Context, in registry.Instance) error {
	_ = a.note(in)
	return registry.OtherNames(registry.NotRegistered(errors.New("it is not there")), "api", "old/api")
}

func placedClient(driver, template string, entries ...registry.Entry) (c *Client, asked *[]serviceKey) {
	asked = &[]serviceKey{}
	made := placed{template, asked, entries}
	return New(made, Options{Driver: driver, Timeout: callTimeout, MaxInFlight: 4}), asked
}

func named(service string) registry.Instance {
	return registry.Instance{Service: service, Address: "10.0.0.1", Port: 80}
}

// TestDriverIsToldThePlace holds for each call, about Rollcall's own entries and applications'.
func TestDriverIsToldThePlace(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, template, service string
		want                      serviceKey
	}
	expect.Each(t, map[string]row{
		"in a place":         {"no driver has to know the template", "{namespace}", "shop/web/v1", serviceKey{"shop", "web/v1"}},
		"in a place of two":  {"the template says how many parts it has", "{namespace}/{label:team}", "shop/a/web", serviceKey{"shop/a", "web"}},
		"of a former option": {"it has no place here, which the driver refuses", "{namespace}", "web", serviceKey{"", "web"}},
		"without places":     {"a slash is the name's", "", "shop/web", serviceKey{"", "shop/web"}},
	}, func(t *testing.T, tc row) {
		own, asked := placedClient("d", tc.template)
		in := named(tc.service)
		for _, c := range []*Client{own, own.AppEntries()} {
			calls := map[string]func() error{
				"Get":  func() error { _, err := c.Get(t.Context(), Caller{}, in); return err },
				"Read": func() error { _, err := c.Read(t.Context(), in); return err },
			}
			for _, state := range []registry.State{registry.InService, registry.OutOfService, registry.Absent} {
				calls[string(state)] = func() error { return c.Change(t.Context(), Caller{}, registry.Change{Instance: in, State: state}) }
			}
			if c == own {
				calls["Probe"] = func() error { return c.Probe(t.Context(), Caller{}, in) }
				calls["Heartbeat"] = func() error { return c.Heartbeat(t.Context(), in) }
			}
			for op, call := range calls {
				*asked = nil
				if err := call(); registry.CodeOf(err) == registry.CodeTerminal || !slices.Equal(*asked, []serviceKey{tc.want}) {
					t.Errorf("%s: the driver was asked about %q (error %v), want %q: %s", op, *asked, err, tc.want, tc.reason)
				}
			}
		}
	})
}

// TestNamesThatADriverFindsAreInThePlace: a pod's services are compared with them.
func TestNamesThatADriverFindsAreInThePlace(t *testing.T) {
	t.Parallel()
	for template, want := range map[string][]string{"{namespace}": {"shop/api", "shop/old/api"}, "": {"api", "old/api"}} {
		c, _ := placedClient("d", template)
		err := c.AppEntries().Change(t.Context(), Caller{}, registry.Change{Instance: named("shop/web"), State: registry.InService})
		expect.Code(t, registry.CodeNotRegistered, err, "the driver's")
		expect.Equal(t, want, registry.OtherNamesOf(err), "names with the template %q", template)
	}
}

// TestListOfAPlace: each service is by the key that calls have, and what is elsewhere is not this list's to tell.
func TestListOfAPlace(t *testing.T) {
	t.Parallel()
	at := func(place, name string) registry.Entry {
		in := named(name)
		in.Place = place
		return registry.Entry{Instance: in, State: registry.InService}
	}
	driversOwn := []registry.Entry{at("shop", "web"), at("other", "web"), at("", "web"), at("shop", "web/v1")}
	before := slices.Clone(driversOwn)
	c, _ := placedClient("d", "{namespace}", driversOwn...)
	got, err := c.ListPlace(t.Context(), "test", "shop")
	want := []registry.Entry{{Instance: named("shop/web"), State: registry.InService}, {Instance: named("shop/web/v1"), State: registry.InService}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("entries (-want +got), with error %v:\n%s", err, diff)
	}
	expect.Equal(t, before, driversOwn, "what the driver returned was changed")
}

// TestEntriesThatMayBeOne: two names of the configuration can be one registry.
func TestEntriesThatMayBeOne(t *testing.T) {
	t.Parallel()
	type row struct {
		reason        string
		driver        string
		template      string
		own, others   string
		want          bool
		otherTemplate string
	}
	expect.Each(t, map[string]row{
		"the same place":       {"it is the same key", "d", "{namespace}", "a/web", "a/web", true, "{namespace}"},
		"the name in capitals": {"clients take both for one", "d", "{namespace}", "a/web", "a/WEB", true, "{namespace}"},
		"another place":        {"two places have no entry in common", "d", "{namespace}", "a/web", "b/web", false, "{namespace}"},
		"another template":     {"each has its own spelling of a place", "d", "{namespace}", "a/web", "b/c/web", true, "{namespace}/{label:team}"},
		"places in one alone":  {"its place can be where the other one is", "d", "{namespace}", "a/web", "web", true, ""},
		"another name":         {"they differ wherever they are", "d", "{namespace}", "a/web", "b/c/api", false, "{namespace}/{label:team}"},
		"another driver":       {"it is another registry", "e", "{namespace}", "a/web", "a/web", false, "{namespace}"},
	}, func(t *testing.T, tc row) {
		own, _ := placedClient("d", tc.template)
		other, _ := placedClient(tc.driver, tc.otherTemplate)
		expect.Equal(t, tc.want, own.MayBeOne(named(tc.own), other, named(tc.others)), "%s", tc.reason)
	})
}
