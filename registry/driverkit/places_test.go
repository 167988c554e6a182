package driverkit_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestPlaceTemplate(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, namespace, group, want, field string
	}
	expect.Each(t, map[string]row{
		"none":               {"there are no places", "public", "DEFAULT_GROUP", "", ""},
		"namespace":          {"what is the same for all is no part", "{namespace}", "DEFAULT_GROUP", "{namespace}", ""},
		"both":               {"a / tells them apart", "rc-{nsLabel:example.com/team}", "{label:app}", "rc-{nsLabel:example.com/team}/{label:app}", ""},
		"unknown":            {"it would be a place of that name", "{pod}", "DEFAULT_GROUP", "", "options.namespace"},
		"no label":           {"no label has such a key", "{namespace}", "{label:}", "", "options.group"},
		"not closed":         {"it is a slip", "{namespace", "DEFAULT_GROUP", "", "options.namespace"},
		"closed twice":       {"it is a slip", "{namespace}}", "DEFAULT_GROUP", "", "options.namespace"},
		"with the separator": {"its parts could not be told apart", "a/{namespace}", "DEFAULT_GROUP", "", "options.namespace"},
	}, func(t *testing.T, tc row) {
		options := driverkit.Places{{"options.namespace", &tc.namespace}, {"options.group", &tc.group}}
		got, err := options.Template()
		field, _ := registry.FieldOf(err)
		if got != tc.want || field != tc.field {
			t.Errorf("got %q and an error of %q (%v), want %q and %q: %s", got, field, err, tc.want, tc.field, tc.reason)
		}
	})
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
func (d inPlace) Traits() registry.Traits {
	return registry.Traits{Weighs: true, HeartbeatInterval: time.Minute}
}

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
		if err := (driverkit.Places{{"options.namespace", &namespace}, {"options.group", &group}}).Fill(place); err != nil {
			return nil, err
		}
		if namespace[0] == '-' {
			return nil, registry.FieldError("options.namespace", errors.New("begins with -"))
		}
		return inPlace{options: "namespace " + namespace + ", group " + group, asked: asked}, nil
	}), asked
}

func placedInstance(place string) registry.Instance {
	return registry.Instance{Place: place, Service: "web", Address: "10.0.0.1", Port: 80}
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
		err := call(t.Context(), placedInstance("shop/a"))
		if want := []string{name + " web in namespace shop, group a"}; err != nil || !slices.Equal(*asked, want) {
			t.Errorf("asked %q with error %v, want %q", *asked, err, want)
		}
	}
	if p.Traits() != (registry.Traits{Weighs: true, HeartbeatInterval: time.Minute, PlaceTemplate: "{namespace}/{label:team}"}) || !p.Probes() {
		t.Error("what holds for all places is what the driver of one says")
	}
}

// TestPlaceThatTheRegistryCantHave: the pod never gets in, and has nothing to be taken out.
func TestPlaceThatTheRegistryCantHave(t *testing.T) {
	t.Parallel()
	p, asked := placed()
	for _, place := range []string{"-shop/a", "shop", "shop/a/b", "shop/", ""} {
		for name, call := range calls(p) {
			err := call(t.Context(), placedInstance(place))
			if joins := name == "Register" || name == "Probe" || name == "Heartbeat"; joins != (err != nil) ||
				joins != (registry.CodeOf(err) == registry.CodeTerminal) {
				t.Errorf("%s in %q: got error %v", name, place, err)
			}
		}
	}
	err := p.Register(t.Context(), placedInstance("-shop/a"))
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
		if !errors.Is(err, want) || registry.CodeOf(err) != registry.CodeOf(want) || (err == nil) != (len(entries) == 1) {
			t.Errorf("place %s: got %v and error %v, want the error %v", place, entries, err, want)
		}
		if len(entries) == 1 && entries[0].Place != "there" {
			t.Errorf("got %+v, want it in its place", entries[0])
		}
	}
}

// rich is a driver with all that a driver may have, in a place.
type rich struct{ inPlace }

func (rich) Traits() registry.Traits { return registry.Traits{Staleness: time.Second} }
func (rich) BatchLimit() int         { return 5 }
func (rich) Probes() bool            { return false }

func (rich) UnlistedMembers() []string { return []string{"a", "b"} }

func (d rich) Batch(_ context.Context, changes []registry.Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = fmt.Errorf("batch of %d in %s: %s", len(changes), d.options, c.Instance.Service)
	}
	return errs
}

// TestPlacedHasWhatItsBaseHas: Rollcall finds a capability by its interface, so one that is forgotten is lost without a sign.
func TestPlacedHasWhatItsBaseHas(t *testing.T) {
	t.Parallel()
	made := map[string]reflect.Type{
		"Registry": reflect.TypeFor[registry.Registry](), "PlaceLister": reflect.TypeFor[registry.PlaceLister](),
		"Describer": reflect.TypeFor[registry.Describer](), "Getter": reflect.TypeFor[registry.Getter](),
		"Prober": reflect.TypeFor[registry.Prober](), "OptionalProber": reflect.TypeFor[registry.OptionalProber](),
		"Heartbeater": reflect.TypeFor[registry.Heartbeater](), "Batcher": reflect.TypeFor[registry.Batcher](),
		"AppEntrySteerer": reflect.TypeFor[registry.AppEntrySteerer](), "MemberLister": reflect.TypeFor[registry.MemberLister](),
	}
	without := map[string]string{
		"Lister":       "it lists by place",
		"AppRegistry":  "it is what AppEntries returns",
		"EntryMatcher": "so is that; see TestPlacedMatchesEntries",
	}
	for _, name := range interfacesOf(t, "..") {
		capability, composed := made[name]
		if reason := without[name]; composed == (reason != "") {
			t.Errorf("registry.%s is new: have Placed forward it to its base, or say here why not", name)
		}
		if composed && !reflect.TypeFor[*driverkit.Placed]().Implements(capability) {
			t.Errorf("Placed is not a %s", name)
		}
	}
	open := func(place string) (driverkit.InPlace, error) { return rich{inPlace{options: place}}, nil }
	has := driverkit.NewPlaced("{label:team}", rich{}, open)
	if has.Traits() != (registry.Traits{Staleness: time.Second, PlaceTemplate: "{label:team}"}) || has.BatchLimit() != 5 || has.Probes() ||
		len(has.UnlistedMembers()) != 2 {
		t.Error("what the base has is lost")
	}
	lacks := driverkit.NewPlaced("{label:team}", struct{ driverkit.InPlace }{}, nil)
	if lacks.Traits() != (registry.Traits{PlaceTemplate: "{label:team}"}) || lacks.BatchLimit() != 1 || lacks.Probes() || lacks.UnlistedMembers() != nil {
		t.Error("what the base lacks has an effect")
	}
}

// matching has applications' entries that are one whatever their port.
type matching struct{ inPlace }

func (d matching) AppEntries() registry.AppRegistry { return matcher{apps(d)} }

type matcher struct{ apps }

func (matcher) MayBeOne(a, b registry.Instance) bool { return a.Service == "web" && b.Service == "web" }

func TestPlacedMatchesEntries(t *testing.T) {
	t.Parallel()
	at := func(port int) registry.Instance {
		return registry.Instance{Service: "web", Address: "10.0.0.1", Port: port}
	}
	of := func(base driverkit.InPlace) (registry.EntryMatcher, bool) {
		matches, is := driverkit.NewPlaced("{label:team}", base, nil).AppEntries().(registry.EntryMatcher)
		return matches, is
	}
	if matches, is := of(matching{}); !is || !matches.MayBeOne(at(1), at(2)) {
		t.Error("what the base knows of entries is lost")
	}
	if _, is := of(inPlace{}); is {
		t.Error("the base knows nothing of entries")
	}
}

// interfacesOf are the exported ones that a package declares.
func interfacesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	expect.NoError(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		expect.NoError(t, err)
		if file.Name.Name != "registry" {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.TypeSpec)
			if !is || !spec.Name.IsExported() {
				return true
			}
			if _, is := spec.Type.(*ast.InterfaceType); is {
				names = append(names, spec.Name.Name)
			}
			return false
		})
	}
	return names
}

// TestPlacedBatch: it is of one place, and each change has its outcome.
func TestPlacedBatch(t *testing.T) {
	t.Parallel()
	opens := func(made func(place string) driverkit.InPlace) func(string) (driverkit.InPlace, error) {
		return func(place string) (driverkit.InPlace, error) {
			if place == "-" {
				return nil, registry.FieldError("options.namespace", errors.New("begins with -"))
			}
			return made(place), nil
		}
	}
	changes := func(state registry.State, place string) (all []registry.Change) {
		for range 2 {
			all = append(all, registry.Change{Instance: placedInstance(place), State: state})
		}
		return all
	}
	p := driverkit.NewPlaced("{label:team}", rich{}, opens(func(place string) driverkit.InPlace { return rich{inPlace{options: place}} }))
	got := fmt.Sprint(p.Batch(t.Context(), changes(registry.InService, "a")))
	if want := "[batch of 2 in a: web batch of 2 in a: web]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for state, fails := range map[registry.State]bool{registry.InService: true, registry.Absent: false} {
		errs := p.Batch(t.Context(), changes(state, "-"))
		for i, err := range errs {
			if fails != (registry.CodeOf(err) == registry.CodeTerminal) || len(errs) != 2 {
				t.Errorf("change %d of %d to %s, where no place can be, has error %v", i, len(errs), state, err)
			}
		}
	}
	if errs := p.Batch(t.Context(), nil); len(errs) > 0 {
		t.Errorf("got errors %v of no changes", errs)
	}
	asked := &[]string{}
	single := driverkit.NewPlaced("{label:team}", inPlace{}, opens(func(place string) driverkit.InPlace {
		return inPlace{options: place, asked: asked}
	}))
	if errs := single.Batch(t.Context(), changes(registry.OutOfService, "a")[:1]); len(errs) != 1 || errs[0] != nil ||
		!slices.Equal(*asked, []string{"FailOver web in a"}) {
		t.Errorf("asked %q with errors %v, want a call of its own", *asked, errs)
	}
}

func TestPlacedApps(t *testing.T) {
	t.Parallel()
	p, asked := placed()
	err := p.AppEntries().Register(t.Context(), placedInstance("shop/a"))
	if names := registry.OtherNamesOf(err); registry.CodeOf(err) != registry.CodeNotRegistered || !slices.Equal(names, []string{"api"}) {
		t.Errorf("got error %v with the names %q, want the application's other one", err, names)
	}
	if err := p.AppEntries().FailOver(t.Context(), placedInstance("-shop/a")); err != nil {
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
		expect.NoError(t, p.Register(t.Context(), placedInstance(fmt.Sprintf("team-%d", team))))
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
