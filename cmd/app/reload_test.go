package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/shorten"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/mount"
	"github.com/rollcall-dev/rollcall/test/harness/series"
)

func TestReloadApplies(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	before := s.drivers.current.Load().get("old").client
	s.Write(s.two + "drain: 3s\nservice: {port: 9000}\n")
	s.Poll(3)
	got := s.ExpectApplied()
	if got.Drain.Max != 3*time.Second || got.Services.Port != 9000 || got.Cluster != "prod-1" || !got.Ownership.Owns("example.com/a") {
		t.Errorf("settings are %+v, want the file's", got)
	}
	if got.Registries["old"] != before {
		t.Error("another registry although its section is the same: all that is known of it is lost")
	}
	s.ExpectMetrics(1, 0, 1)

	s.Write(strings.Replace(s.two, "name: old, ", "name: old, timeout: 2s, ", 1))
	s.Poll(3)
	if one := s.ExpectApplied().Registries["old"]; one == before || one.Timeout() != 2*time.Second {
		t.Errorf("the registry's section changed and it is %+v", one)
	}
	s.ExpectMetrics(2, 0, 1)
	s.Write(strings.Replace(s.two, "name: old, ", "name: old, timeout: 2s, ", 1) + "# a comment\n")
	s.Poll(3)
	s.ExpectNothing()
	s.Write(strings.Replace(s.two, "endpoint: old", "endpoint: another", 1))
	s.Poll(3)
	s.ExpectRefused("registries[old]: ", "another registry", "restart")
}

func TestReloadRefuses(t *testing.T) {
	t.Parallel()
	type row struct {
		config string
		want   []string
	}
	expect.Each(t, map[string]row{
		"a bad value":      {minimal + "drain: -3s\n", []string{`drain: Invalid value: "-3s"`}},
		"no YAML":          {"cluster: [", []string{"(file)"}},
		"a bad driver":     {strings.Replace(minimal, "fake", "consol", 1), []string{`registry.driver: Unsupported value: "consol"`}},
		"a driver's error": {strings.Replace(minimal, "fake", "file\n  auth: {tokenFile: /nonexistent}", 1), []string{"registry.auth.tokenFile: Invalid value", "/nonexistent"}},
		"another cluster":  {strings.Replace(minimal, "prod-1", "prod-2", 1), []string{`cluster: Invalid value: "prod-2": can't change`, `"prod-1", or restart`}},
		"other namespaces": {minimal + "namespaces: [web]\n", []string{"namespaces: ", "can't change", "restart"}},
	}, func(t *testing.T, tc row) {
		s := newReloadScenario(t)
		before := s.drivers.current.Load()
		s.Write(tc.config)
		s.Poll(3)
		s.ExpectRefused(tc.want...)
		s.ExpectMetrics(0, 1, 0)
		if s.drivers.current.Load() != before {
			t.Error("the registry in force has changed")
		}
		s.Write(minimal + "drain: -4s\n")
		s.Poll(1)
		s.ExpectRefused(`"-4s"`)
		s.Write(s.two)
		s.Poll(3)
		s.ExpectEvent("Normal", "ConfigApplied", "in force")
		s.ExpectNothing()
		s.ExpectMetrics(1, 2, 1)
	})
}

func TestReloadWaitsForTheConfigurationsFile(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	s.Remove()
	s.Poll(3)
	s.ExpectRefused("reading the configuration", s.reload.path)
	s.Write(s.two + "drain: 5s\n")
	s.Poll(1)
	if got := s.ExpectApplied(); got.Drain.Max != 5*time.Second {
		t.Errorf("a drain of %s is in force, want 5s", got.Drain.Max)
	}
}

func TestReloadTriesAgainWhatCouldNotBeOpened(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	token := filepath.Join(t.TempDir(), "token")
	s.Write(s.two + "- {name: third, driver: file, auth: {tokenFile: " + token + "}}\n")
	s.Poll(3)
	s.ExpectRefused("registries[third].auth.tokenFile")
	must(t, os.WriteFile(token, []byte("first"), 0o600))
	s.Poll(1)
	if got := s.ExpectApplied(); got.Registries["third"] == nil {
		t.Errorf("got %+v", got.Registries)
	}
}

// TestReloadRemembersWhatItRefused: what stands in the file for a night does not open and close the other registries all night.
func TestReloadRemembersWhatItRefused(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	token := filepath.Join(t.TempDir(), "token")
	var made []*fake
	s.drivers.constructors["file"] = func(ctx context.Context, c registry.Config) (registry.Registry, error) {
		r, err := openWithToken(ctx, c)
		made = append(made, r.(*fake))
		return r, err
	}
	expectMade := func(why string, want int) {
		t.Helper()
		if len(made) != want {
			t.Errorf("registries were opened %d times, want %d\nwhy: %s", len(made), want, why)
		}
		made = nil
	}
	refused := s.two + "- {name: fourth, driver: file}\n- {name: third, driver: file, auth: {tokenFile: " + token + "}}\n"
	s.Write(refused)
	s.Poll(1)
	s.ExpectRefused("registries[third].auth.tokenFile")
	if len(made) != 2 || !made[0].closed.Load() {
		t.Errorf("made %d registries, want the fourth, closed again, and the third", len(made))
	}
	made = nil
	s.Poll(5)
	expectMade("nothing has changed", 0)

	s.Write(refused + "drain: 5s\n")
	s.Poll(3)
	expectMade("the file is another", 2)
	s.new.Swap("token", "second")
	s.Poll(1)
	expectMade("three of the new configuration, and that of the one in force whose token was rotated", 4)
	s.Poll(1)
	expectMade("other registries are in force", 2)
	s.Poll(3)
	expectMade("nothing has changed", 0)
	s.old.Remove()
	s.Poll(3)
	expectMade("a file of a registry in force is gone: of the new configuration three are opened, and of the one in force one", 4)
	last := s.drivers.refused[false]
	last.at = last.at.Add(-refusedFor)
	s.drivers.refused[false] = last
	s.Poll(3)
	expectMade("a driver may read what it should not", 3)

	s.events, s.settings = nil, nil
	s.old.Swap("token", "first")
	must(t, os.WriteFile(token, []byte("first"), 0o600))
	s.Poll(1)
	if got := s.ExpectApplied(); got.Registries["third"] == nil || got.Drain.Max != 5*time.Second {
		t.Errorf("got %+v", got.Registries)
	}
}

func TestReloadFollowsRotatedFiles(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		change func(s *reloadScenario)
		// opened are the registries that are opened anew, and event what is reported, if anything.
		opened, event string
	}
	expect.Each(t, map[string]row{
		"one registry's token":   {"the others keep theirs", func(s *reloadScenario) { s.old.Swap("token", "second") }, "old", ""},
		"both registries' token": {"one change puts both in force", func(s *reloadScenario) { s.old.Swap("token", "second"); s.new.Swap("token", "third") }, "new old", ""},
		"another file of it":     {"every file counts", func(s *reloadScenario) { s.old.Swap("ca", "second") }, "old", ""},
		"an empty file":          {"an empty one is not a missing one", func(s *reloadScenario) { s.old.Swap("cert", "") }, "old", ""},
		"the same content":       {"a swap alone is none", func(s *reloadScenario) { s.old.Swap("token", "first"); s.old.Swap("no one's", "x") }, "", ""},
		"a new configuration too": {"one change puts both in force", func(s *reloadScenario) {
			s.old.Swap("token", "second")
			s.Write(s.two + "drain: 3s\n")
		}, "old", "ConfigApplied"},
		"another section too": {"it is opened because of its section", func(s *reloadScenario) {
			s.old.Swap("token", "second")
			s.new.Swap("token", "second")
			s.Write(strings.Replace(s.two, "driver: file", "driver: file, timeout: 2s", 1))
		}, "new old", "ConfigApplied"},
		"a configuration that is wrong": {"it does not keep the registries from new credentials", func(s *reloadScenario) {
			s.Write(s.two + "drain: -3s\n")
			s.old.Swap("token", "second")
		}, "old", "drain: Invalid"},
		"a configuration that can't be applied": {"it does not keep the registries from new credentials", func(s *reloadScenario) {
			s.Write(s.two + "- {name: third, driver: file, auth: {tokenFile: /nonexistent}}\n")
			s.old.Swap("token", "second")
		}, "old", "registries[third].auth.tokenFile"},
		"a broken file of another": {"a registry with a wrong file keeps no other from its own", func(s *reloadScenario) {
			s.old.Remove()
			s.new.Swap("token", "second")
		}, "new", "registries[old].auth.tokenFile"},
	}, func(t *testing.T, tc row) {
		s := newReloadScenario(t)
		tc.change(s)
		s.Poll(1)
		if got := s.rotated(); got != tc.opened || (len(s.settings) == 1) != (got != "") {
			t.Errorf("opened again %q and gave settings %+v, want %q: %s", got, s.settings, tc.opened, tc.reason)
		}
		if tc.event != "" {
			s.ExpectEvent(tc.event)
		}
		s.settings = nil
		s.Poll(3)
		s.ExpectNothing()
	})
}

func TestReloadWaitsForARegistrysFile(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(*mount.Folder){
		"the Secret is gone":     func(m *mount.Folder) { m.Remove() },
		"the key is gone":        func(m *mount.Folder) { m.Drop("token") },
		"the file is empty yet":  func(m *mount.Folder) { m.Swap("token", "") },
		"it is another's secret": func(m *mount.Folder) { m.Swap("token", "s3cret of two words") },
	}, func(t *testing.T, spoil func(*mount.Folder)) {
		for _, then := range []string{"first", "second"} {
			s := newReloadScenario(t)
			spoil(s.old)
			s.Poll(3)
			s.ExpectRefused("auth.tokenFile")
			s.old.Swap("token", then)
			s.Poll(3)
			s.ExpectEvent("ConfigApplied")
			if got := s.rotated(); (got == "old") != (then == "second") {
				t.Errorf("opened %q again when the token was %s", got, then)
			}
		}
	})
}

func TestReloadEvents(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		// leads is whether this manager leads when the configuration is refused, and failures how often the API server refuses
		// the Event.
		leads    bool
		failures int
		// corrected is whether the file is right again before this manager leads.
		corrected bool
		want      string
	}
	expect.Each(t, map[string]row{
		"the leader":                          {"it makes the Event at once", true, 0, false, "ConfigRefused"},
		"the next leader":                     {"the leader that made the Event may have been another one's, and gone", false, 0, false, "ConfigRefused"},
		"the next leader, after a correction": {"nothing is wrong any more", false, 0, true, ""},
		"the leader, at last":                 {"else a person never hears of a refusal that stands", true, 2, false, "ConfigRefused"},
		"the next leader, at last":            {"else a person never hears of a refusal that stands", false, 2, false, "ConfigRefused"},
	}, func(t *testing.T, tc row) {
		s := newReloadScenario(t)
		elected := make(chan struct{})
		s.reload.events.elected = elected
		s.failures = tc.failures
		if tc.leads {
			close(elected)
		}
		s.Write(s.two + "drain: -3s\n")
		s.Poll(2)
		if !tc.leads {
			s.ExpectNothing()
			if tc.corrected {
				s.Write(s.two)
				s.Poll(1)
			}
			close(elected)
		}
		s.Poll(3)
		if tc.want != "" {
			s.ExpectEvent("Warning", tc.want, `"-3s"`)
		}
		s.Poll(2)
		s.ExpectNothing()
		s.reload.event.made = s.reload.event.made.Add(-reason.EventRepeat) // the API server drops an Event after an hour
		s.Poll(2)
		if tc.want != "" {
			s.ExpectEvent("Warning", tc.want, `"-3s"`)
		}
		s.ExpectNothing()
	})
}

// reloadScenario is a reload that the test polls. It has two registries, whose files are in a Secret each.
type reloadScenario struct {
	*mount.Folder

	t        *testing.T
	reload   *reload
	drivers  *drivers
	before   *registries
	two      string
	old, new *mount.Folder
	gatherer *prometheus.Registry

	settings []observe.Settings
	events   []string
	// failures is how many of the next Events the API server refuses.
	failures int
}

func newReloadScenario(t *testing.T) *reloadScenario {
	t.Helper()
	token := map[string]string{"token": "first"}
	s := &reloadScenario{
		Folder: mount.New(t, map[string]string{}), t: t, old: mount.New(t, token), new: mount.New(t, token),
		drivers: newDrivers(t, newFake), gatherer: prometheus.NewRegistry(),
	}
	s.drivers.constructors["file"] = openWithToken
	section := func(endpoint string, m *mount.Folder) string {
		return fmt.Sprintf("driver: file, endpoint: %s, tls: {caFile: %q, certFile: %q, keyFile: %q}, auth: {tokenFile: %q, passwordFile: %q}}\n",
			endpoint, m.Path("ca"), m.Path("cert"), m.Path("key"), m.Path("token"), m.Path("password"))
	}
	s.two = "cluster: prod-1\nhooks: {owned: [example.com/*]}\nregistries:\n- {name: old, default: true, " + section("old", s.old) +
		"- {name: new, " + section("new", s.new)
	s.Write(s.two)
	limits := testLimits()
	limits.Drivers = append(limits.Drivers, "file")
	current, err := config.Load(s.Path("config.yaml"), limits)
	must(t, err)
	expectOpened(t, s.drivers, current)
	s.before = s.drivers.current.Load()
	server := interceptor.NewClient(clientfake.NewFakeClient(), interceptor.Funcs{Create: s.keepEvent})
	elected := make(chan struct{})
	close(elected)
	s.reload = &reload{
		path: s.Path("config.yaml"), limits: limits, interval: time.Millisecond,
		drivers: s.drivers, metrics: metrics.NewConfigMetrics(s.gatherer), logger: logr.Discard(),
		events: &configEvents{server: server, elected: elected, logger: logr.Discard()},
		apply:  func(all *registries) { s.settings = append(s.settings, settings(all)) },
	}
	return s
}

// openWithToken reads the token as a driver does.
func openWithToken(_ context.Context, c registry.Config) (registry.Registry, error) {
	_, err := driverkit.ReadCredentials(registry.Auth{TokenFile: c.Auth.TokenFile}, driverkit.Token)
	return &fake{}, err
}

// rotated returns which registries have another client than at the start.
func (s *reloadScenario) rotated() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.before.byName)) {
		was, is := s.before.get(name).client, s.drivers.current.Load().get(name).client
		if is != was {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func (s *reloadScenario) Write(content string) {
	s.t.Helper()
	s.Swap("config.yaml", content)
}

// Poll reads the files so many times.
func (s *reloadScenario) Poll(times int) {
	for range times {
		s.reload.once(s.t.Context())
	}
}

// ExpectApplied expects one configuration and its Event, and returns the settings that the controller gets.
func (s *reloadScenario) ExpectApplied() observe.Settings {
	s.t.Helper()
	s.ExpectEvent("Normal", "ConfigApplied", "in force")
	if len(s.settings) != 1 {
		s.t.Fatalf("settings are %+v, want one", s.settings)
	}
	got := s.settings[0]
	s.settings = nil
	return got
}

func (s *reloadScenario) ExpectRefused(parts ...string) {
	s.t.Helper()
	s.ExpectEvent(append(parts, "Warning", "ConfigRefused", "the previous configuration stays in force")...)
	if len(s.settings) > 0 {
		s.t.Errorf("refused, and the controller gets %+v", s.settings)
	}
}

// ExpectEvent expects one Event since the last.
func (s *reloadScenario) ExpectEvent(parts ...string) {
	s.t.Helper()
	if len(s.events) != 1 || strings.Contains(s.events[0], "s3cret") {
		s.t.Fatalf("Events are %q, want one, without a secret", s.events)
	}
	for _, part := range append(parts, "ConfigMap/rollcall-config") {
		if !strings.Contains(s.events[0], part) {
			s.t.Errorf("the Event is %q, want %q in it", s.events[0], part)
		}
	}
	s.events = nil
}

func (s *reloadScenario) ExpectNothing() {
	s.t.Helper()
	if len(s.settings)+len(s.events) > 0 {
		s.t.Errorf("got settings %+v and Events %q, want nothing", s.settings, s.events)
	}
}

func (s *reloadScenario) keepEvent(_ context.Context, _ client.WithWatch, made client.Object, _ ...client.CreateOption) error {
	e := made.(*eventsv1.Event)
	// What the API server checks and the fake one does not.
	if problems := validation.NameIsDNSSubdomain(e.GenerateName, true); len(problems) > 0 {
		s.t.Errorf("generateName %q: %s", e.GenerateName, problems)
	}
	if e.EventTime.IsZero() || e.ReportingInstance == "" || e.Action == "" || len(e.Note) > shorten.MaxMessage {
		s.t.Errorf("the Event lacks something: %+v", e)
	}
	if s.failures > 0 {
		s.failures--
		return errors.New("etcdserver: leader changed")
	}
	s.events = append(s.events, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
	return nil
}

func (s *reloadScenario) ExpectMetrics(applied, refused, last int) {
	s.t.Helper()
	series.Expect(s.t, s.gatherer, "reloads", fmt.Sprintf("rollcall_config_last_reload_successful %d", last),
		fmt.Sprintf(`rollcall_config_reloads_total{outcome="applied"} %d`, applied),
		fmt.Sprintf(`rollcall_config_reloads_total{outcome="refused"} %d`, refused))
}
