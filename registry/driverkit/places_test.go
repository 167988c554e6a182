package driverkit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

func TestPlaceTemplate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, namespace, group, want, field string
	}{
		"none":               {"there are no places", "public", "DEFAULT_GROUP", "", ""},
		"namespace":          {"what is the same for all is no part", "{namespace}", "DEFAULT_GROUP", "{namespace}", ""},
		"both":               {"a / tells them apart", "rc-{nsLabel:example.com/team}", "{label:app}", "rc-{nsLabel:example.com/team}/{label:app}", ""},
		"unknown":            {"it would be a place of that name", "{pod}", "DEFAULT_GROUP", "", "options.namespace"},
		"no label":           {"no label has such a key", "{namespace}", "{label:}", "", "options.group"},
		"not closed":         {"it is a slip", "{namespace", "DEFAULT_GROUP", "", "options.namespace"},
		"closed twice":       {"it is a slip", "{namespace}}", "DEFAULT_GROUP", "", "options.namespace"},
		"with the separator": {"its parts could not be told apart", "a/{namespace}", "DEFAULT_GROUP", "", "options.namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := driverkit.Places{{"options.namespace", &tc.namespace}, {"options.group", &tc.group}}
			got, err := options.Template()
			field, _ := registry.FieldOf(err)
			if got != tc.want || field != tc.field {
				t.Errorf("got %q and an error of %q (%v), want %q and %q: %s", got, field, err, tc.want, tc.field, tc.reason)
			}
		})
	}
}

// inPlace is a driver that notes what it is asked.
type inPlace struct {
	driverkit.InPlace

	options string
	asked   *[]string
	fails   error
}

func (d inPlace) note(what string, in registry.Instance) error {
	*d.asked = append(*d.asked, what+" "+in.Service+" in "+d.options)
	return nil
}

func (d inPlace) Register(_ context.Context, in registry.Instance) error {
	return d.note("Register", in)
}
func (d inPlace) FailOver(_ context.Context, in registry.Instance) error {
	return d.note("FailOver", in)
}
func (d inPlace) Deregister(_ context.Context, in registry.Instance) error {
	return d.note("Deregister", in)
}

func (d inPlace) Get(_ context.Context, in registry.Instance) (registry.State, error) {
	return registry.InService, d.note("Get", in)
}

func (d inPlace) Probe(_ context.Context, in registry.Instance) error { return d.note("Probe", in) }
func (d inPlace) Heartbeat(_ context.Context, in registry.Instance) error {
	return d.note("Heartbeat", in)
}
func (d inPlace) HeartbeatInterval() time.Duration { return time.Minute }
func (d inPlace) Weighs() bool                     { return true }

func (d inPlace) List(context.Context, string) ([]registry.Entry, error) {
	if d.fails != nil {
		return nil, d.fails
	}
	return []registry.Entry{{Instance: registry.Instance{Service: "web"}, State: registry.Foreign}}, nil
}

func (d inPlace) AppEntries() registry.AppRegistry { return apps{d} }

type apps struct{ inPlace }

func (a apps) Register(_ context.Context, in registry.Instance) error {
	_ = a.note("AppRegister", in)
	return registry.OtherNames(registry.NotRegistered(errors.New("it is not there")), "api")
}

// placed is a driver of places that begin with a letter.
func placed() (p *driverkit.Placed, asked *[]string) {
	asked = &[]string{}
	return driverkit.NewPlaced("{namespace}/{label:team}", inPlace{}, func(place string) (driverkit.InPlace, error) {
		namespace, group := "{namespace}", "{label:team}"
		driverkit.Places{{"options.namespace", &namespace}, {"options.group", &group}}.Fill(place)
		if namespace[0] == '-' {
			return nil, registry.FieldError("options.namespace", errors.New("begins with -"))
		}
		return inPlace{options: "namespace " + namespace + ", group " + group, asked: asked}, nil
	}), asked
}

func placedInstance(service string) registry.Instance {
	return registry.Instance{Service: service, Address: "10.0.0.1", Port: 80}
}

// calls are those that are about an instance.
func calls(p *driverkit.Placed) map[string]func(context.Context, registry.Instance) error {
	return map[string]func(context.Context, registry.Instance) error{
		"Register": p.Register, "FailOver": p.FailOver, "Deregister": p.Deregister, "Probe": p.Probe, "Heartbeat": p.Heartbeat,
		"Get": func(ctx context.Context, in registry.Instance) error { _, err := p.Get(ctx, in); return err },
	}
}

func TestPlacedCallsAreMadeInTheirPlace(t *testing.T) {
	t.Parallel()
	p, asked := placed()
	for name, call := range calls(p) {
		*asked = nil
		err := call(t.Context(), placedInstance("shop/a/web/1"))
		if want := []string{name + " web/1 in namespace shop, group a"}; err != nil || !slices.Equal(*asked, want) {
			t.Errorf("asked %q with error %v, want %q", *asked, err, want)
		}
	}
	if !p.Weighs() || p.HeartbeatInterval() != time.Minute || !p.Probes() {
		t.Error("what holds for all places is what the driver of one says")
	}
}

// TestPlaceThatTheRegistryCantHave: the pod never gets in, and has nothing to be taken out.
func TestPlaceThatTheRegistryCantHave(t *testing.T) {
	t.Parallel()
	p, asked := placed()
	for _, service := range []string{"-shop/a/web", "shop/web"} {
		for name, call := range calls(p) {
			err := call(t.Context(), placedInstance(service))
			if joins := name == "Register" || name == "Probe" || name == "Heartbeat"; joins != (err != nil) || joins != registry.IsTerminal(err) {
				t.Errorf("%s of %s: got error %v", name, service, err)
			}
		}
	}
	err := p.Register(t.Context(), placedInstance("-shop/a/web"))
	for _, says := range []string{`"{namespace}/{label:team}"`, `"-shop/a"`, "options.namespace: begins with -", "set the label"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %q, and lacks %q", err, says)
		}
	}
	if entries, err := p.ListPlace(t.Context(), "test", "-shop/a"); len(entries) > 0 || err != nil {
		t.Errorf("listed %v with error %v, want nothing", entries, err)
	}
	if len(*asked) > 0 {
		t.Errorf("asked %q", *asked)
	}
}

// TestListPlace: what a place has that does not answer is not known.
func TestListPlace(t *testing.T) {
	t.Parallel()
	refusal, trouble := registry.Terminal(errors.New("there is no such namespace")), errors.New("connection refused")
	p := driverkit.NewPlaced("{label:team}", inPlace{}, func(place string) (driverkit.InPlace, error) {
		return inPlace{fails: map[string]error{"refused": refusal, "away": trouble}[place]}, nil
	})
	for place, want := range map[string]error{"there": nil, "refused": refusal, "away": trouble} {
		entries, err := p.ListPlace(t.Context(), "test", place)
		if !errors.Is(err, want) || registry.IsTerminal(err) != registry.IsTerminal(want) || (err == nil) != (len(entries) == 1) {
			t.Errorf("place %s: got %v and error %v, want the error %v", place, entries, err, want)
		}
		if len(entries) == 1 && entries[0].Service != "there/web" {
			t.Errorf("got service %q, want it with its place", entries[0].Service)
		}
	}
}

func TestPlacedApps(t *testing.T) {
	t.Parallel()
	p, asked := placed()
	err := p.AppEntries().Register(t.Context(), placedInstance("shop/a/web"))
	if names := registry.OtherNamesOf(err); !registry.IsNotRegistered(err) || !slices.Equal(names, []string{"shop/a/api"}) {
		t.Errorf("got error %v with the names %q, want them with their place", err, names)
	}
	if err := p.AppEntries().FailOver(t.Context(), placedInstance("-shop/a/web")); err != nil {
		t.Errorf("taking out where no application can be: %v", err)
	}
	if want := []string{"AppRegister web in namespace shop, group a"}; !slices.Equal(*asked, want) {
		t.Errorf("asked %q, want %q", *asked, want)
	}
}

// TestPlacesAreForgotten: who may label pods may choose their places, as many as there are.
func TestPlacesAreForgotten(t *testing.T) {
	t.Parallel()
	opened := 0
	p := driverkit.NewPlaced("{label:team}", inPlace{}, func(string) (driverkit.InPlace, error) {
		opened++
		return inPlace{asked: &[]string{}}, nil
	})
	register := func(team int) {
		if err := p.Register(t.Context(), placedInstance(fmt.Sprintf("team-%d/web", team))); err != nil {
			t.Fatal(err)
		}
	}
	const many = 2500
	for team := range many {
		register(team)
		register(team)
	}
	if register(0); opened != many+1 {
		t.Errorf("%d drivers were opened, want one for each of %d places, and the first again", opened, many)
	}
}
