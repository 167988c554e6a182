package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

func TestOpenKeepsTheRegistryWhereItsSectionIsTheSame(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	c := configured(t, minimal)
	first := expectOpened(t, d, c)
	if same := expectOpened(t, d, configured(t, minimal+"drain: 1s\n")); same != first {
		t.Error("another drain made another registry, and all that is known of the first is lost")
	}
	next := expectOpened(t, d, configured(t, strings.Replace(minimal, "fake", "fake\n  timeout: 1s", 1)))
	if next.client == first.client {
		t.Error("another timeout made no other client")
	}
}

func TestMaxInFlightChangesInPlace(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	expectOpened(t, d, configured(t, several))
	before := d.current.Load()
	changed := configured(t, strings.Replace(several, "new: {driver: fake", "new: {driver: fake, maxInFlight: 7", 1))
	refused, err := d.open(t.Context(), changed, nil)
	must(t, err)
	if got := refused.get("new").client.Status().Slots; got != config.DefaultMaxInFlight {
		t.Errorf("%d slots before the configuration is in force", got)
	}
	expectOpened(t, d, changed)
	after := d.current.Load()
	if after.get("new") != before.get("new") {
		t.Error("another registry: every pod would be registered again")
	}
	for name, want := range map[string]int{"old": config.DefaultMaxInFlight, "new": 7} {
		if got := settings(changed, after).Registries[name].Status().Slots; got != want {
			t.Errorf("%s has %d slots, want %d", name, got, want)
		}
	}
	expectOpened(t, d, configured(t, several))
	if got := before.get("new").client.Status().Slots; got != config.DefaultMaxInFlight {
		t.Errorf("%d slots after it was taken back", got)
	}
	rotated := expectOpened(t, d, changed, "old", "new")
	if rotated == before.get("old") || d.current.Load().get("new") == before.get("new") {
		t.Error("a file that was rotated meanwhile is not read")
	}
}

func TestARegistryMoreTakesSlotsOfTheOthers(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	parse := func(text string) *config.Config {
		limits := testLimits()
		limits.Workers = 128
		c, err := config.Parse([]byte(text), limits)
		must(t, err)
		return c
	}
	kept := expectOpened(t, d, parse(several))
	for _, step := range []struct {
		text string
		want int
	}{{several + "  third: {driver: fake}\n", 48}, {several, 96}} {
		if expectOpened(t, d, parse(step.text)) != kept {
			t.Fatal("another registry: every pod would be registered again")
		}
		if got := kept.client.Status().Slots; got != step.want {
			t.Errorf("it has %d slots, want %d: all but one together leave a quarter of the workers", got, step.want)
		}
	}
}

func TestARotatedFileMakesAnotherClientOfTheSameRegistry(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	first := expectOpened(t, d, configured(t, several))
	next := expectOpened(t, d, configured(t, several), "old")
	if next.client == first.client {
		t.Error("the registry goes on with the files that it read before")
	}
	if next.client.Server() != first.client.Server() {
		t.Error("the controller takes it for another registry, and registers all pods again")
	}
	elsewhere := strings.Replace(several, "old: {", "old: {endpoint: other, ", 1)
	if moved := expectOpened(t, d, configured(t, elsewhere), "old"); moved.client.Server() == first.client.Server() {
		t.Error("the controller takes two registries for one")
	}
	if err := register(t.Context(), first); registryclient.Classify(err) != registryclient.Fenced {
		t.Errorf("a call to the old registry gave %v, want it refused", err)
	}
}

func TestOneOfSeveralRegistriesIsReplacedByItself(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	expectOpened(t, d, configured(t, several))
	before := d.current.Load()
	expectOpened(t, d, configured(t, several+"  extra: {driver: fake}\n"), "new")
	after := d.current.Load()
	if after.get("old") != before.get("old") || after.get("new") == before.get("new") || after.get("extra") == nil {
		t.Errorf("want old kept, new replaced and extra made, got %v after %v", after.byName, before.byName)
	}
	must(t, register(t.Context(), before.get("old")))
	if err := register(t.Context(), before.get("new")); registryclient.Classify(err) != registryclient.Fenced {
		t.Errorf("a call to the one that was replaced gave %v, want it refused", err)
	}
}

func TestARenamedRegistryIsKnownByItsServer(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	called := func(name string) *config.Config {
		return configured(t, "cluster: a\nhooks: {owned: [example.com/*]}\nregistries:\n  other: {driver: fake, endpoint: 'http://b'}\n  "+
			name+": {driver: fake, endpoint: 'http://a', timeout: 1s}\ndefaultRegistries: [other]\n")
	}
	expectRenamed := func(name string, want map[string]string) {
		t.Helper()
		next, err := d.open(t.Context(), called(name), nil)
		must(t, err)
		must(t, d.replace(next))
		if got := settings(called(name), next).Renamed; !maps.Equal(got, want) {
			t.Errorf("after it was called %s: got %v, want %v", name, got, want)
		}
	}
	expectRenamed("first", nil)
	expectRenamed("second", map[string]string{"first": "second"})
	expectRenamed("third", map[string]string{"first": "third", "second": "third"})
	expectRenamed("first", map[string]string{"second": "first", "third": "first"})
}

func TestOpenThatFailsLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	var made []*fake
	d := newDrivers(t, func(_ context.Context, c registry.Config) (registry.Registry, error) {
		if c.Endpoint == "bad" {
			return nil, registry.FieldError("endpoint", errors.New("write a URL"))
		}
		made = append(made, &fake{})
		return made[len(made)-1], nil
	})
	expectOpened(t, d, configured(t, several))
	_, err := d.open(t.Context(), configured(t, several+"  extra: {driver: fake}\n  worse: {driver: fake, endpoint: bad}\n  zero: {driver: fake, endpoint: bad, options: {other: true}}\n"), nil)
	for _, path := range []string{"registries[worse].endpoint", "registries[zero].endpoint"} {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want an error that names %s", err, path)
		}
	}
	if len(made) != 3 || made[0].closed.Load() || made[1].closed.Load() || !made[2].closed.Load() {
		t.Errorf("of %d that were made, want the two in force open and the third closed", len(made))
	}
}

// several has two registries.
const several = `cluster: prod-1
hooks: {owned: [example.com/*]}
defaultRegistries: [old]
registries:
  old: {driver: fake}
  new: {driver: fake}
`

func TestOpenThatFailsLeavesTheRegistryInForce(t *testing.T) {
	t.Parallel()
	fail := false
	d := newDrivers(t, func(ctx context.Context, c registry.Config) (registry.Registry, error) {
		if fail {
			return nil, registry.FieldError("endpoint", errors.New("write a URL"))
		}
		return newFake(ctx, c)
	})
	first := expectOpened(t, d, configured(t, minimal))
	fail = true
	_, err := d.open(t.Context(), configured(t, strings.Replace(minimal, "fake", "fake\n  endpoint: x", 1)), nil)
	if err == nil || !strings.Contains(err.Error(), "registry.endpoint: Invalid value: write a URL") {
		t.Errorf("got %v, want an error that names registry.endpoint", err)
	}
	if d.current.Load().get("default") != first {
		t.Error("the registry in force has changed")
	}
	if err := register(t.Context(), first); err != nil {
		t.Errorf("the registry in force: %v", err)
	}
}

func TestReplaceClosesTheOldRegistryAfterItsCalls(t *testing.T) {
	t.Parallel()
	old := &fake{entered: make(chan struct{}), proceed: make(chan struct{})}
	made := []registry.Registry{old, &fake{}}
	d := newDrivers(t, func(context.Context, registry.Config) (registry.Registry, error) {
		next := made[0]
		made = made[1:]
		return next, nil
	})
	before := expectOpened(t, d, configured(t, minimal))

	called := make(chan error, 1)
	go func() { called <- register(t.Context(), before) }()
	receive(t, old.entered)
	next, err := d.open(t.Context(), configured(t, strings.Replace(minimal, "fake", "fake\n  timeout: 1s", 1)), nil)
	must(t, err)
	replaced := make(chan error, 1)
	go func() { replaced <- d.replace(next) }()
	// From here on the old registry takes no call, although one is still under way.
	eventually(t, func() error {
		if d.current.Load() != next {
			return errors.New("the new registry is not in force")
		}
		return nil
	})
	if old.closed.Load() {
		t.Error("closed under a call")
	}
	close(old.proceed)
	if err := receive(t, called); err != nil {
		t.Errorf("the call under way: %v", err)
	}
	must(t, receive(t, replaced))
	if !old.closed.Load() {
		t.Error("the old registry was not closed")
	}
	if err := register(t.Context(), before); registryclient.Classify(err) != registryclient.Fenced {
		t.Errorf("a call to the old registry gave %v, want it refused", err)
	}
	if _, err := before.client.List(t.Context(), "prod-1"); registryclient.Classify(err) != registryclient.Fenced {
		t.Errorf("a list of the old registry gave %v, want it refused", err)
	}
}

func TestARegistryThatIsNoMoreIsShownNoMore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, text string
		want         string
	}{
		"dropped":        {"nobody calls it", strings.Replace(several, "  new: {driver: fake}\n", "", 1), "old/fake"},
		"another driver": {"it is another registry", strings.Replace(several, "new: {driver: fake}", "new: {driver: one}", 1), "old/fake"},
		"opened anew": {"a counter that begins at 0 again tells nothing of the registry",
			strings.Replace(several, "new: {driver: fake}", "new: {driver: fake, timeout: 1s}", 1), "new/fake old/fake"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := &fake{entered: make(chan struct{}), proceed: make(chan struct{})}
			made := 0
			d := newDrivers(t, func(context.Context, registry.Config) (registry.Registry, error) {
				if made++; made == 1 { // new comes before old
					return slow, nil
				}
				return &fake{}, nil
			})
			d.constructors["one"] = newFake
			gathered := prometheus.NewRegistry()
			m := metrics.NewRegistryMetrics(gathered)
			d.metrics = m
			old := expectOpened(t, d, configured(t, several))
			must(t, register(t.Context(), old))
			called := make(chan error, 1)
			before := d.current.Load().get("new")
			go func() { called <- register(t.Context(), before) }()
			receive(t, slow.entered)

			next, err := d.open(t.Context(), configured(t, tc.text), nil)
			must(t, err)
			replaced := make(chan error, 1)
			go func() { replaced <- d.replace(next) }()
			close(slow.proceed) // the call that is under way must not bring the series back
			must(t, receive(t, called))
			must(t, receive(t, replaced))
			if got := seriesOf(t, gathered); got != tc.want {
				t.Errorf("shown are %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// seriesOf returns of which registries and drivers there are series of calls.
func seriesOf(t *testing.T, gathered prometheus.Gatherer) string {
	t.Helper()
	families, err := gathered.Gather()
	must(t, err)
	found := map[string]bool{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			found[labels["registry"]+"/"+labels["driver"]] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

func TestTheRegistryIsServedReadOnlyAndFollowsAReload(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	d.constructors["one"], d.constructors["two"] = serve("one"), serve("two")
	for _, step := range []struct {
		reason, driver, method string
		code                   int
		body                   string
	}{
		{"the handler answers", "one", http.MethodGet, http.StatusOK, "one"},
		{"HEAD reads too", "one", http.MethodHead, http.StatusOK, "one"},
		{"nothing may be changed, whatever the handler can do", "one", http.MethodPost, http.StatusMethodNotAllowed, "read-only"},
		{"nothing may be changed, whatever the handler can do", "one", http.MethodDelete, http.StatusMethodNotAllowed, "read-only"},
		{"another registry is in force", "two", http.MethodGet, http.StatusOK, "two"},
		{"a driver that serves nothing says so", "fake", http.MethodGet, http.StatusNotFound, `"fake" can't be read here`},
	} {
		expectOpened(t, d, configured(t, strings.Replace(minimal, "fake", step.driver, 1)))
		answer := httptest.NewRecorder()
		d.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), step.method, "/v1/instances", nil))
		if answer.Code != step.code || !strings.Contains(answer.Body.String(), step.body) {
			t.Errorf("%s: got %d %q, want %d and %q", step.reason, answer.Code, answer.Body, step.code, step.body)
		}
	}
}

func TestEachRegistryIsServedUnderItsName(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	path := func(name string) registry.Constructor {
		return func(context.Context, registry.Config) (registry.Registry, error) {
			return &readable{text: name, path: true}, nil
		}
	}
	d.constructors["one"], d.constructors["two"] = path("one"), path("two")
	expectOpened(t, d, configured(t, strings.NewReplacer("old: {driver: fake", "old: {driver: one", "new: {driver: fake", "new: {driver: two").Replace(several)))
	for _, tc := range []struct {
		reason, path string
		code         int
		body         string
	}{
		{"the first of the defaults has the short path", "/v1/instances", http.StatusOK, "one /v1/instances"},
		{"a name comes before the driver's own path", "/registries/new/v1/instances", http.StatusOK, "two /v1/instances"},
		{"the default has a name too", "/registries/old/v1/instances", http.StatusOK, "one /v1/instances"},
		{"a name that nobody has", "/registries/other/v1/instances", http.StatusNotFound, `no registry "other"`},
	} {
		answer := httptest.NewRecorder()
		d.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil))
		if answer.Code != tc.code || !strings.Contains(answer.Body.String(), tc.body) {
			t.Errorf("%s: got %d %q, want %d and %q", tc.reason, answer.Code, answer.Body, tc.code, tc.body)
		}
	}
}

func newDrivers(t *testing.T, constructor registry.Constructor) *drivers {
	t.Helper()
	m := metrics.NewRegistryMetrics(prometheus.NewRegistry())
	return &drivers{
		constructors: map[string]registry.Constructor{"fake": constructor}, metrics: m,
	}
}

func configured(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text), testLimits())
	must(t, err)
	return c
}

func testLimits() config.Limits {
	return config.Limits{Drivers: []string{"fake", "one", "two"}, Timeout: timeoutLimit}
}

// expectOpened opens the registries of a configuration and puts them in force. It returns the first of the defaults.
func expectOpened(t *testing.T, d *drivers, c *config.Config, rotated ...string) *opened {
	t.Helper()
	all, err := d.open(t.Context(), c, rotated)
	must(t, err)
	must(t, d.replace(all))
	return all.get(c.DefaultRegistries[0])
}

// register makes a call to a registry.
func register(ctx context.Context, o *opened) error {
	return o.client.Change(ctx, registryclient.Caller{}, registry.Change{State: registry.InService})
}

// serve makes a registry that serves its text.
func serve(text string) registry.Constructor { return always(&readable{text: text}) }

// always makes one and the same registry.
func always(reg registry.Registry) registry.Constructor {
	return func(context.Context, registry.Config) (registry.Registry, error) { return reg, nil }
}

func newFake(context.Context, registry.Config) (registry.Registry, error) { return &fake{}, nil }

// fake counts calls, and holds each until proceed is closed where there is one.
type fake struct {
	calls            atomic.Int32
	closed           atomic.Bool
	entered, proceed chan struct{}
}

func (f *fake) call() error {
	f.calls.Add(1)
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

// readable serves its text to every request, with the path that it was asked for where that is wanted.
type readable struct {
	fake
	text string
	path bool
}

func (r *readable) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	text := r.text
	if r.path {
		text += " " + request.URL.Path
	}
	_, _ = fmt.Fprint(w, text)
}

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

// eventually waits until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
