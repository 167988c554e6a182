package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	clientfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/controller"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/registry"
)

func TestReloadPutsANewConfigurationInForceWhole(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	s.Start()
	before := s.drivers.current.Load()

	s.Write(minimal + "drain: 3s\nservice: {port: 9000}\n")
	got := s.ExpectSettings()
	if got.Drain != 3*time.Second || got.Services.Port != 9000 || got.Cluster != "prod-1" || !got.Ownership.Owns("example.com/a") {
		t.Errorf("settings are %+v, want the file's", got)
	}
	was := before.get("default").client
	if got.Registries["default"] != was {
		t.Error("another registry although its section is the same: all that is known of it is lost")
	}
	s.ExpectEvent("Normal", "ConfigApplied", "in force")

	s.Write(strings.Replace(minimal, "fake", "fake\n  timeout: 2s", 1))
	got = s.ExpectSettings()
	if one := got.Registries["default"]; one == was || one.Timeout() != 2*time.Second {
		t.Errorf("the registry's section changed and the settings are %+v", got)
	}
	s.ExpectMetrics(2, 0, 1)
}

func TestReloadRefusesABadConfiguration(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config string
		want   string
	}{
		"a bad value":      {minimal + "drain: -3s\n", `drain: Invalid value: "-3s"`},
		"a bad driver":     {strings.Replace(minimal, "fake", "consol", 1), `registry.driver: Unsupported value: "consol"`},
		"a driver's error": {strings.Replace(minimal, "fake", "picky", 1), "registry.endpoint: Invalid value: write a URL"},
		"another cluster":  {strings.Replace(minimal, "prod-1", "prod-2", 1), "cluster: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newReloadScenario(t)
			s.Start()
			before := s.drivers.current.Load()
			s.Write(tc.config)
			s.ExpectEvent("Warning", "ConfigRefused", tc.want)
			s.ExpectMetrics(0, 1, 0)
			if s.drivers.current.Load() != before {
				t.Error("the registry in force has changed")
			}
			s.Write(minimal + "drain: 4s\n")
			if got := s.ExpectSettings(); got.Drain != 4*time.Second {
				t.Errorf("settings are %+v, want the new file's", got)
			}
			s.ExpectEvent("Normal", "ConfigApplied", "in force")
			s.ExpectMetrics(1, 1, 1)
		})
	}
}

func TestARotatedFileIsInUseAtOnce(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("first"), 0o600))
	s.Start()
	s.Write(strings.Replace(minimal, "fake", "fake\n  auth: {tokenFile: "+token+"}", 1))
	before := s.ExpectSettings().Registries["default"]
	must(t, os.WriteFile(token+".new", []byte("second"), 0o600))
	must(t, os.Rename(token+".new", token))
	if s.ExpectSettings().Registries["default"] == before {
		t.Error("the registry goes on with the token that it read before")
	}
	s.ExpectMetrics(1, 0, 1)
}

func TestEachRefusalIsToldByItself(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	s.Start()
	s.Write(minimal + "drain: -3s\n")
	s.ExpectEvent("Warning", "ConfigRefused", `"-3s"`)
	s.Write(minimal + "drain: -4s\n")
	s.ExpectEvent("Warning", "ConfigRefused", `"-4s"`)
}

func TestOnlyTheLeaderMakesEvents(t *testing.T) {
	t.Parallel()
	s := newReloadScenario(t)
	s.reload.events.elected = make(chan struct{})
	s.Start()
	s.Write(minimal + "drain: 3s\n")
	s.ExpectSettings()
	s.ExpectMetrics(1, 0, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) > 0 {
		t.Errorf("made %q", s.events)
	}
}

func TestARefusalThatStandsIsToldByTheNextLeader(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		then   func(*reloadScenario)
		want   string
	}{
		"still refused": {"whoever told it may be gone", func(*reloadScenario) {}, "ConfigRefused"},
		"mended": {"nothing is wrong any more", func(s *reloadScenario) {
			s.Write(minimal + "drain: 3s\n")
			s.ExpectSettings()
			s.ExpectMetrics(1, 1, 1)
		}, "ConfigApplied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newReloadScenario(t)
			elected := make(chan struct{})
			s.reload.events.elected = elected
			s.Start()
			s.Write(minimal + "drain: -3s\n")
			s.ExpectMetrics(0, 1, 0)
			tc.then(s)
			close(elected)
			if tc.want == "ConfigApplied" {
				s.Write(minimal + "drain: 4s\n") // the first Event is of this
			}
			s.ExpectEvent(tc.want)
		})
	}
}

func TestARefusalIsToldOnceTheAPIServerTakesItsEvent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		elected bool
	}{
		"by the leader":      {"it stands, and a person would never hear of it", true},
		"by the next leader": {"so too", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newReloadScenario(t)
			elected := make(chan struct{})
			if tc.elected {
				close(elected)
			}
			s.reload.events.elected = elected
			s.failures = 3
			s.Start()
			s.Write(minimal + "drain: -3s\n")
			s.ExpectMetrics(0, 1, 0)
			if !tc.elected {
				close(elected)
			}
			s.ExpectEvent("Warning", "ConfigRefused", `"-3s"`)
			s.Write(minimal + "drain: 3s\n")
			s.ExpectEvent("Normal", "ConfigApplied") // and not the refusal a second time
		})
	}
}

func TestShortenKeepsRunesWhole(t *testing.T) {
	t.Parallel()
	for _, note := range []string{"", "short", strings.Repeat("x", maxNote), strings.Repeat("x", 5000), strings.Repeat("é", 5000), "x" + strings.Repeat("€", 5000)} {
		got := shorten(note)
		if len(got) > maxNote || !utf8.ValidString(got) {
			t.Errorf("%d bytes became %d, valid %t", len(note), len(got), utf8.ValidString(got))
		}
		if len(note) <= maxNote && got != note {
			t.Errorf("%q became %q", note, got)
		}
	}
}

// reloadScenario is a reload that runs as it does in a cluster, on a file that is swapped as kubelet does.
type reloadScenario struct {
	t        *testing.T
	reload   *reload
	drivers  *drivers
	dir      string
	versions int
	gatherer *prometheus.Registry

	mu       sync.Mutex
	settings []controller.Settings
	events   []string
	// failures is how many of the next Events the API server refuses.
	failures int
}

func newReloadScenario(t *testing.T) *reloadScenario {
	t.Helper()
	s := &reloadScenario{
		t: t, dir: t.TempDir(), drivers: newDrivers(t, newFake), gatherer: prometheus.NewRegistry(),
	}
	clients := clientfake.NewClientset()
	clients.PrependReactor("create", "events", s.keepEvent)
	s.drivers.constructors["picky"] = func(context.Context, registry.Config) (registry.Registry, error) {
		return nil, registry.FieldError("endpoint", errors.New("write a URL"))
	}
	path := filepath.Join(s.dir, "config.yaml")
	must(t, os.Symlink("..data/config.yaml", path))
	s.Write(minimal)
	limits := testLimits()
	limits.Drivers = append(limits.Drivers, "picky")
	current, err := config.Load(path, limits)
	must(t, err)
	expectOpened(t, s.drivers, current)
	m := metrics.NewConfigMetrics(s.gatherer)
	elected := make(chan struct{})
	close(elected)
	s.reload = &reload{
		watcher: config.Watcher{Path: path, Limits: limits, Current: current, Interval: 2 * time.Millisecond},
		drivers: s.drivers, metrics: m, logger: logr.Discard(),
		events: &configEvents{events: clients.EventsV1().Events(""), elected: elected, logger: logr.Discard()},
		apply: func(c *config.Config, all *registries) {
			settings := settings(c, all)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.settings = append(s.settings, settings)
		},
	}
	return s
}

func (s *reloadScenario) Start() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.reload.Start(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *reloadScenario) Write(content string) {
	s.t.Helper()
	s.versions++
	version := fmt.Sprintf("..%d", s.versions)
	must(s.t, os.Mkdir(filepath.Join(s.dir, version), 0o700))
	must(s.t, os.WriteFile(filepath.Join(s.dir, version, "config.yaml"), []byte(content), 0o600))
	must(s.t, os.Symlink(version, filepath.Join(s.dir, "..tmp")))
	must(s.t, os.Rename(filepath.Join(s.dir, "..tmp"), filepath.Join(s.dir, "..data")))
}

// ExpectSettings waits for the next settings that the controller gets.
func (s *reloadScenario) ExpectSettings() controller.Settings {
	s.t.Helper()
	var got controller.Settings
	eventually(s.t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.settings) == 0 {
			return errors.New("the controller got no settings")
		}
		got = s.settings[0]
		s.settings = s.settings[1:]
		return nil
	})
	return got
}

// ExpectEvent waits for the next Event.
func (s *reloadScenario) ExpectEvent(parts ...string) {
	s.t.Helper()
	var got string
	eventually(s.t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.events) == 0 {
			return fmt.Errorf("no Event, want one with %q", parts)
		}
		got = s.events[0]
		s.events = s.events[1:]
		return nil
	})
	for _, part := range append(parts, "ConfigMap/rollcall-config") {
		if !strings.Contains(got, part) {
			s.t.Errorf("the Event is %q, want %q in it", got, part)
		}
	}
}

func (s *reloadScenario) keepEvent(action clienttesting.Action) (bool, runtime.Object, error) {
	e := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
	// What the API server checks and the fake one does not.
	if problems := validation.NameIsDNSSubdomain(e.GenerateName, true); len(problems) > 0 {
		s.t.Errorf("generateName %q: %s", e.GenerateName, problems)
	}
	if e.EventTime.IsZero() || e.ReportingInstance == "" || e.Action == "" || len(e.Note) > maxNote {
		s.t.Errorf("the Event lacks something: %+v", e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 {
		s.failures--
		return true, nil, errors.New("etcdserver: leader changed")
	}
	s.events = append(s.events, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
	return true, e, nil
}

func (s *reloadScenario) ExpectMetrics(applied, refused, last int) {
	s.t.Helper()
	eventually(s.t, func() error {
		return testutil.GatherAndCompare(s.gatherer, strings.NewReader(fmt.Sprintf(`
# HELP rollcall_config_last_reload_successful 1 if the manager uses the configuration file as it is now, 0 if it refused the file.
# TYPE rollcall_config_last_reload_successful gauge
rollcall_config_last_reload_successful %d
# HELP rollcall_config_reloads_total Changes of the configuration file, by outcome (applied, refused).
# TYPE rollcall_config_reloads_total counter
rollcall_config_reloads_total{outcome="applied"} %d
rollcall_config_reloads_total{outcome="refused"} %d
`, last, applied, refused)))
	})
}
