package app

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/series"
)

// several has two registries.
const several = `cluster: prod-1
hooks: {owned: [example.com/*]}
registries:
- {default: true, name: old, driver: fake}
- {name: new, driver: fake}
`

func TestDriversChangeMaxInFlightInPlace(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	limits := testLimits()
	expectOpened(t, d, parse(t, several, limits))
	before := d.current.Load()
	for _, step := range []struct {
		text     string
		old, new int
	}{
		{strings.Replace(several, "new, driver: fake", "new, driver: fake, maxInFlight: 7", 1), 20, 7},
		{several, 20, 20},
		{several + "- {name: third, driver: fake}\n", 20, 20},
		{strings.Replace(several, "new, driver: fake", "new, driver: fake, maxInFlight: 7", 1) + "- {name: third, driver: fake}\n", 20, 7},
	} {
		c := parse(t, step.text, limits)
		expectOpened(t, d, c)
		for name, want := range map[string]int{"old": step.old, "new": step.new} {
			o := d.current.Load().get(name)
			if o != before.get(name) {
				t.Fatalf("%s is another registry: every pod would be registered again", name)
			}
			if got := settings(d.current.Load()).Registries[name].Status().Slots; got != want || d.slots()[name].Slots != want {
				t.Errorf("%s: %s has %d slots, and shows %d, want %d", step.text, name, got, d.slots()[name].Slots, want)
			}
		}
	}
	refused, err := d.open(t.Context(), parse(t, strings.ReplaceAll(several, "driver: fake", "driver: fake, maxInFlight: 5"), limits))
	must(t, err)
	if refused.get("new").client.Status().Slots == 5 {
		t.Error("the slots change before the configuration is in force")
	}
	before.get("new").files = fingerprint{1}
	expectOpened(t, d, parse(t, strings.Replace(several, "new, driver: fake", "new, driver: fake, maxInFlight: 9", 1), limits))
	if d.current.Load().get("new") == before.get("new") {
		t.Error("a file that was rotated meanwhile is not read")
	}
}

func TestDriversReplaceOneOfSeveral(t *testing.T) {
	t.Parallel()
	two := strings.Replace(several, "name: new, driver: fake", "name: new, driver: fake, endpoint: 'http://a'", 1)
	type row struct {
		reason, text string
		shown        bool
	}
	expect.Each(t, map[string]row{
		"it is dropped":          {"it is called no more", strings.Replace(two, "- {name: new, driver: fake, endpoint: 'http://a'}\n", "", 1), false},
		"it has another section": {"a counter that begins at 0 again tells nothing of the registry", strings.Replace(two, "name: new, driver: fake", "name: new, timeout: 1s, driver: fake", 1), true},
	}, func(t *testing.T, tc row) {
		slow := &fake{entered: make(chan struct{}), proceed: make(chan struct{})}
		made := 0
		d := newDrivers(t, func(context.Context, registry.Config) (registry.Registry, error) {
			if made++; made == 1 { // new comes before old
				return slow, nil
			}
			return &fake{}, nil
		})
		gathered := prometheus.NewRegistry()
		d.metrics = metrics.NewRegistryMetrics(gathered)
		old := expectOpened(t, d, configured(t, two))
		must(t, register(t.Context(), old))
		called := make(chan error, 1)
		before := d.current.Load().get("new")
		go func() { called <- register(t.Context(), before) }()
		receive(t, slow.entered)

		next, err := d.open(t.Context(), configured(t, tc.text))
		must(t, err)
		replaced := make(chan error, 1)
		go func() { replaced <- d.replace(next) }()
		close(slow.proceed) // the call that is under way must not bring the series back
		must(t, receive(t, called))
		must(t, receive(t, replaced))
		if err := register(t.Context(), before); registryclient.Classify(err) != registryclient.Fenced || !slow.closed.Load() {
			t.Errorf("a call to the one that was replaced gave %v, want it refused; closed: %t", err, slow.closed.Load())
		}
		if d.current.Load().get("old") != old || register(t.Context(), old) != nil {
			t.Error("the other one was replaced too")
		}
		if shown := slices.ContainsFunc(series.Of(t, gathered), func(line string) bool {
			return strings.Contains(line, `registry="new"`)
		}); shown != tc.shown {
			t.Errorf("its series are shown: %t, want %t: %s", shown, tc.shown, tc.reason)
		}
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	d.constructors["one"] = always(&leased{})
	c := configured(t, strings.Replace(several, "name: old, driver: fake", "name: old, driver: one, timeout: 2s", 1)+
		"service: {metadata: {site: here}, allowed: [{namespaces: [shop], names: [web], shared: true}]}\n"+
		"proceedAfter: {preDelete: 3s}\npanicThreshold: 30%\n")
	expectOpened(t, d, c)
	all := d.current.Load()
	got := settings(all)
	plain, capable := got.Registries["new"], got.Registries["old"]
	if plain.Probes() || !capable.Probes() || capable.Timeout() != 2*time.Second || capable != all.get("old").client {
		t.Errorf("got %+v", got.Registries)
	}
	if !got.Services.Allowed.Shares("shop", nil, "web") || got.Services.Metadata["site"] != "here" || !slices.Equal(got.DefaultRegistries, []string{"old"}) {
		t.Errorf("got %+v, want what the configuration says", got)
	}
	if got.ProceedAfter != (lifecycle.FailurePolicy{PreDelete: 3 * time.Second}) || got.Services.Allowed == nil ||
		got.PanicThreshold != c.PanicThreshold || got.PanicThreshold == 0 {
		t.Errorf("got %+v, want what the configuration says", got)
	}
}

func newDrivers(t *testing.T, constructor registry.Constructor) *drivers {
	t.Helper()
	return &drivers{
		constructors: map[string]registry.Constructor{"fake": constructor}, metrics: metrics.NewRegistryMetrics(prometheus.NewRegistry()),
	}
}

func configured(t *testing.T, text string) *config.Config {
	t.Helper()
	return parse(t, text, testLimits())
}

func parse(t *testing.T, text string, limits config.Limits) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text), limits)
	must(t, err)
	return c
}

func testLimits() config.Limits {
	return config.Limits{Drivers: []string{"fake", "one", "two"}}
}

// expectOpened opens the registries of a configuration and puts them in force. It returns the first of the defaults.
func expectOpened(t *testing.T, d *drivers, c *config.Config) *opened {
	t.Helper()
	all, err := d.open(t.Context(), c)
	must(t, err)
	must(t, d.replace(all))
	return all.get(c.DefaultRegistries[0])
}

// register makes a call to a registry.
func register(ctx context.Context, o *opened) error {
	return o.client.Change(ctx, registryclient.Caller{}, registry.Change{State: registry.InService})
}

func TestWarmUpOnlyWhereThereAreWeights(t *testing.T) {
	t.Parallel()
	const warmUp = "warmUp: 2m\nservice: {metadata: {weight: \"100\"}}\n"
	d := newDrivers(t, newFake)
	d.constructors["one"] = always(weighing(true))
	one := strings.Replace(several, "old, driver: fake", "old, driver: one", 1)
	next, err := d.open(t.Context(), configured(t, one+warmUp))
	if want := `warmUp: Invalid value: "2m0s": registries[new] has no weights (driver fake, or its format): remove warmUp, and set annotation ` +
		`rollcall.dev/warm-up on the workloads`; err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "[old]") {
		t.Errorf("got error %v, want one with %q", err, want)
	}
	must(t, next.closeBut(nil))
	d.constructors["fake"] = always(weighing(false)) // a format without
	next, err = d.open(t.Context(), configured(t, one+warmUp))
	if err == nil {
		t.Error("a format without weights is not refused")
	}
	must(t, next.closeBut(nil))
	next, err = d.open(t.Context(), configured(t, one))
	must(t, err)
	if got := settings(next).Weightless; got["old"] || !got["new"] {
		t.Errorf("%v are without weights", got)
	}
	must(t, next.closeBut(nil))
	d.constructors["fake"] = always(weighing(true))
	expectOpened(t, d, configured(t, one+warmUp))
}

func weighing(does bool) registry.Registry { return described{&fake{}, registry.Traits{Weighs: does}} }

func TestWhatFollowsTheConditionNeedsIt(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	d.constructors["one"] = endpointslice.NewWatch().New
	text := strings.Replace(several, "old, driver: fake", "old, driver: one", 1)
	_, err := d.open(t.Context(), configured(t, text))
	expectProblem(t, err, "podCondition: Required value: set podCondition: true: driver one of registries[old]")

	expectOpened(t, d, configured(t, strings.Replace(text, "- {name: new, driver: fake}\n", "", 1)+"podCondition: true\n"))
	if settings(d.current.Load()).Guard {
		t.Error("pods get a finalizer for a registry in which nothing is left of them")
	}
}

func expectProblem(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}

func TestAppsRegisterThemselvesOnlyWhereTheyCanBeSteered(t *testing.T) {
	t.Parallel()
	byApp := func(name string) string {
		return strings.Replace(several, name+", driver: ", name+", registeredBy: App, driver: ", 1)
	}
	one, two := "old, driver: fake", "old, driver: one"
	d := newDrivers(t, newFake)
	d.constructors["one"] = always(newSteering(t))
	before := expectOpened(t, d, configured(t, strings.Replace(several, one, two, 1)))

	next, err := d.open(t.Context(), configured(t, byApp("new")))
	expectProblem(t, err, `registries[new].registeredBy: Invalid value: "App": driver fake can't take an entry out of rotation that an application wrote: remove`)
	must(t, next.closeBut(d.current.Load()))

	now := expectOpened(t, d, configured(t, strings.Replace(byApp("old"), "driver: fake", "driver: one", 1)))
	if now != before {
		t.Error("who registers is no reason for another client: every pod would be registered again")
	}
	got := settings(d.current.Load())
	if !got.RegisteredByApp["old"] || got.RegisteredByApp["new"] {
		t.Errorf("registered by the application: %v, want old alone", got.RegisteredByApp)
	}
}

func TestReaderLag(t *testing.T) {
	t.Parallel()
	lagging := described{&fake{}, registry.Traits{ReaderLag: time.Minute}}
	type row struct {
		reason  string
		section string
		want    time.Duration
		warns   bool
	}
	expect.Each(t, map[string]row{
		"the driver's":        {"it knows its clients", "name: old, driver: one", time.Minute, true},
		"the configuration's": {"people know theirs better", "name: old, readerLag: 10s, driver: one", 10 * time.Second, false},
		"none":                {"a driver need not have any", "name: old, driver: fake", 0, false},
		"none any more":       {"the clients have no cache", "name: old, readerLag: 0s, driver: one", 0, false},
	}, func(t *testing.T, tc row) {
		d := newDrivers(t, newFake)
		d.constructors["one"] = always(lagging)
		expectOpened(t, d, configured(t, strings.Replace(several, "name: old, driver: fake", tc.section, 1)))
		got := settings(d.current.Load())
		expect.Equal(t, tc.want, got.ReaderLags["old"], "%s", tc.reason)
		var logged strings.Builder
		warnOfShortDrains(&got, funcr.New(func(_, line string) { logged.WriteString(line) }, funcr.Options{}))
		expect.Equal(t, tc.warns, strings.Contains(logged.String(), `"registry"="old" "drain"="15s" "readerLag"="1m0s"`), "warned of a drain of 15s: %s", logged.String())
	})
}

func TestGuard(t *testing.T) {
	t.Parallel()
	silent := struct{ registry.Registry }{&fake{}}
	placed := placer{described{&fake{}, registry.Traits{PlaceTemplate: "{namespace}"}}}
	type row struct {
		reason, driver string
		want           bool
	}
	expect.Each(t, map[string]row{
		"all list":       {"resync finds what a pod left", "fake", false},
		"one can't list": {"nothing finds what a pod left that vanished unseen", "one", true},
		"one has places": {"nor in a place without another pod", "two", true},
	}, func(t *testing.T, tc row) {
		d := newDrivers(t, newFake)
		d.constructors["one"], d.constructors["two"] = always(silent), always(placed)
		written := strings.Replace(several, "name: old, driver: fake", "name: old, driver: "+tc.driver, 1)
		expectOpened(t, d, configured(t, written))
		got := settings(d.current.Load())
		expect.Equal(t, tc.want, got.Guard, "guards pods: %s", tc.reason)
		if place := got.Services.Places["old"]; (place == "{namespace}") != (tc.driver == "two") {
			t.Errorf("places pods by %q", place)
		}
	})
}

// described has traits.
type described struct {
	*fake

	traits registry.Traits
}

func (d described) Traits() registry.Traits { return d.traits }

type placer struct{ described }

func (placer) ListPlace(context.Context, string, string) ([]registry.Entry, error) {
	return nil, nil
}

// always makes one and the same registry.
func always(reg registry.Registry) registry.Constructor {
	return func(context.Context, registry.Config) (registry.Registry, error) { return reg, nil }
}

func newFake(context.Context, registry.Config) (registry.Registry, error) { return &fake{}, nil }

// fake holds each call until proceed is closed where there is one.
type fake struct {
	closed           atomic.Bool
	entered, proceed chan struct{}
}

func (f *fake) call() error {
	if f.proceed != nil {
		close(f.entered)
		<-f.proceed
	}
	return nil
}

func (f *fake) Register(context.Context, registry.Instance) error      { return f.call() }
func (f *fake) FailOver(context.Context, registry.Instance) error      { return f.call() }
func (f *fake) Deregister(context.Context, registry.Instance) error    { return f.call() }
func (f *fake) List(context.Context, string) ([]registry.Entry, error) { return nil, f.call() }
func (f *fake) Close() error                                           { f.closed.Store(true); return nil }

// TestEveryFileCounts: one that is left out is never read again.
func TestEveryFileCounts(t *testing.T) {
	t.Parallel()
	var cfg registry.Config
	for _, part := range []reflect.Value{reflect.ValueOf(&cfg.TLS).Elem(), reflect.ValueOf(&cfg.Auth).Elem()} {
		for i := range part.NumField() {
			name := part.Type().Field(i).Name
			if !strings.HasSuffix(name, "File") {
				continue
			}
			path := filepath.Join(t.TempDir(), name)
			part.Field(i).SetString(path)
			before := fingerprintOf(cfg)
			must(t, os.WriteFile(path, []byte("new"), 0o600))
			if fingerprintOf(cfg) == before {
				t.Errorf("%s has new content, and the fingerprint is the same", name)
			}
		}
	}
}

// newSteering makes a registry in which applications register themselves.
func newSteering(t *testing.T) *fakeregistry.Registry {
	t.Helper()
	return fakeregistry.New(fakeregistry.Memory(t.Context()))
}

// podCaller has no server.
type podCaller struct{ *fakeregistry.Registry }

func (podCaller) Traits() registry.Traits { return registry.Traits{CallsPods: true} }

// leased has entries that expire, and probes.
type leased struct{ fake }

func (*leased) Probe(context.Context, registry.Instance) error     { return nil }
func (*leased) Heartbeat(context.Context, registry.Instance) error { return nil }
func (*leased) Traits() registry.Traits                            { return registry.Traits{HeartbeatInterval: time.Second} }

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// TestAdviceForAnotherRegistry: what moves pods to a second name would steer each application's entry by both.
func TestAdviceForAnotherRegistry(t *testing.T) {
	t.Parallel()
	type row struct{ reason, by, want string }
	expect.Each(t, map[string]row{
		"Rollcall writes":    {"its entries would stay behind", "Rollcall", "add the new registry under another name and move the pods"},
		"applications write": {"they write wherever they are configured to", "App", "those in the old registry stay as they are, and no pod has to move"},
	}, func(t *testing.T, tc row) {
		config := "cluster: a\nhooks: {owned: [example.com/*]}\nregistry: {driver: fake, endpoint: 'http://a', registeredBy: " + tc.by + "}\n"
		d := newDrivers(t, newFake)
		before, _ := d.open(t.Context(), configured(t, config))
		must(t, d.replace(before))
		next, err := d.open(t.Context(), configured(t, strings.Replace(config, "//a", "//b", 1)))
		must(t, next.closeBut(d.inForce()))
		if !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("got %v, want %q\nreason: %s", err, tc.want, tc.reason)
		}
	})
}

// TestWhyItCountsAsAnotherRegistry shows a person who is woken what was changed, without an endpoint that may have a password.
func TestWhyItCountsAsAnotherRegistry(t *testing.T) {
	t.Parallel()
	const before = "cluster: a\nhooks: {owned: [example.com/*]}\nregistry: {driver: fake, endpoint: 'http://a', options: {dc: one}}\n"
	type row struct{ old, now, want string }
	expect.Each(t, map[string]row{
		"driver":   {"driver: fake", "driver: one", "driver was fake and is one"},
		"options":  {"dc: one", "dc: two", "options changed"},
		"endpoint": {"//a", "//user:secret@b", "endpoint has none of the addresses that it had"},
		"none":     {"endpoint: 'http://a'", "timeout: 1s", "the section changed and has no endpoint"},
	}, func(t *testing.T, tc row) {
		d := newDrivers(t, newFake)
		d.constructors["one"] = newFake
		expectOpened(t, d, configured(t, before))
		next, err := d.open(t.Context(), configured(t, strings.Replace(before, tc.old, tc.now, 1)))
		must(t, next.closeBut(d.inForce()))
		expectProblem(t, err, "registry: Invalid value: "+tc.want+", so it counts as another registry, which requires a restart: undo")
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("it shows a password: %v", err)
		}
	})
}

// TestARegistryStaysWhatItIs: what a manager knows of the entries in a registry goes by its name.
func TestARegistryStaysWhatItIs(t *testing.T) {
	t.Parallel()
	const others, renamed = "endpoint has none of the addresses that it had, so it counts as another registry", "another name requires a restart"
	before := map[string]string{"default": "http://a,http://b", "other": "http://c"}
	for name, tc := range map[string]struct {
		reason string
		// between is in force before next; nil for none.
		between, next map[string]string
		// want are the refusals, by name.
		want map[string]string
	}{
		"the same":           {"nothing changes", nil, before, nil},
		"more servers of it": {"it is the same", nil, map[string]string{"default": "http://a,http://b,http://d", "other": "http://c"}, nil},
		"one server less":    {"it is the same", nil, map[string]string{"default": "http://b", "other": "http://c"}, nil},
		"one server after another": {"each has one in common with the last", map[string]string{"default": "http://b,http://d", "other": "http://c"},
			map[string]string{"default": "http://d", "other": "http://c"}, nil},
		"a new one":      {"nothing is known of it", nil, map[string]string{"default": "http://a", "other": "http://c", "third": "http://d"}, nil},
		"one less":       {"its entries stay", nil, map[string]string{"other": "http://c"}, nil},
		"one comes back": {"it is the same", map[string]string{"other": "http://c"}, before, nil},
		"other servers": {"they have none of the entries", nil, map[string]string{"default": "http://d", "other": "http://c"},
			map[string]string{"default": others}},
		"comes back as another": {"the same", map[string]string{"other": "http://c"}, map[string]string{"default": "http://d", "other": "http://c"},
			map[string]string{"default": others}},
		"another name": {"what is known of the entries goes by the former", nil, map[string]string{"legacy": "http://a", "other": "http://c"},
			map[string]string{"legacy": renamed}},
		"comes back under another name": {"the same", map[string]string{"other": "http://c"}, map[string]string{"legacy": "http://a", "other": "http://c"},
			map[string]string{"legacy": renamed}},
		"swapped": {"each list would have the entries of the other", nil, map[string]string{"default": "http://c", "other": "http://a"},
			map[string]string{"default": others, "other": others}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written := func(endpoints map[string]string) *config.Config {
				text := "cluster: a\nhooks: {owned: [example.com/*]}\nregistries:\n"
				for name, endpoint := range endpoints {
					text += fmt.Sprintf("- {name: %s, default: true, driver: fake, endpoint: '%s'}\n", name, endpoint)
				}
				return configured(t, text)
			}
			d := newDrivers(t, newFake)
			expectOpened(t, d, written(before))
			if tc.between != nil {
				expectOpened(t, d, written(tc.between))
			}
			next, err := d.open(t.Context(), written(tc.next))
			must(t, next.closeBut(d.inForce()))
			got := map[string]string{}
			for line := range strings.SplitSeq(fmt.Sprint(err), "\n") {
				for _, why := range []string{others, renamed} {
					if field, _, found := strings.Cut(line, "]: "); found && strings.Contains(line, why) {
						got[strings.TrimPrefix(field, "registries[")] = why
					}
				}
			}
			if !maps.Equal(got, tc.want) || err == nil != (tc.want == nil) {
				t.Errorf("got %v (%v), want %v: %s", got, err, tc.want, tc.reason)
			}
		})
	}
}
