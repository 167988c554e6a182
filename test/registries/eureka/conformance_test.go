package eureka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/eureka"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

const wrongPassword = "not-this-pässword"

// The servers of all tests that do not restart them: with the read-only response cache off, with it on, and with basic
// auth.
var (
	uncached = registries.Share(registries.With(eureka.Start, eureka.Options{}))
	cached   = registries.Share(registries.With(eureka.Start, eureka.Options{ReadOnlyCache: true, SlowEviction: true}))
	guarded  = registries.Share(registries.With(eureka.Start, eureka.Options{BasicAuth: true, SlowEviction: true}))
)

func TestMain(m *testing.M) { registries.Main(m, uncached, cached, guarded) }

// TestConformance runs the suite on a server of each kind. The first is one that the suite restarts, and on which entries end:
// the others keep what has no lease.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("CacheOff", func(t *testing.T) {
		t.Parallel()
		server := registries.Use(t, registries.With(eureka.Start, eureka.Options{}))
		h := harness(t, server)
		short := configOf(t, server)
		short.Options = options(server, 1, 22)
		h.Restart = func(t testing.TB) { expect.NoError(t, server.Restart(t.Context())) }
		h.ShortLease = drivertest.Harness(driver.New, short, "").Open
		registrytest.Run(t, h)
	})
	t.Run("CacheOn", func(t *testing.T) {
		t.Parallel()
		h := harness(t, cached.Use(t))
		h.Truth = nil // its List must do
		registrytest.Run(t, h)
	})
	t.Run("BasicAuth", func(t *testing.T) {
		t.Parallel()
		registrytest.Run(t, harness(t, guarded.Use(t)))
	})
}

func harness(t *testing.T, server *eureka.Server) registrytest.Harness {
	t.Helper()
	cfg := configOf(t, server)
	wrong := configOf(t, guarded.Use(t))
	wrong.Auth.PasswordFile = drivertest.File(t, wrongPassword)
	h := drivertest.HTTPHarness(driver.New, cfg, http.StatusBadRequest, http.StatusServiceUnavailable)
	h.Truth = func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		return truth(ctx, server, cluster)
	}
	h.LosingAnswers = drivertest.LosingAnswers(driver.New, cfg)
	drivertest.Meter(&h, driver.New, cfg, server)
	h.Bare = func(t testing.TB) registrytest.Bare { return bare(t, server) }
	h.CostGrows = map[string]int{"Get": 2000, "AppEntries()": 2000} // who has an address shows only in the whole application
	h.Foreign = func(t testing.TB, at registry.Instance) func() {
		a := newApp(t, server, at)
		a.Register()
		return a.Deregister
	}
	h.Copy = func(t testing.TB, of registry.Instance) func() {
		a := newApp(t, server, of)
		a.meta = of.Meta()
		a.Register()
		return a.Deregister
	}
	h.App = func(t testing.TB, at registry.Instance) registrytest.App { return newApp(t, server, at) }
	h.WrongCredentials = func(t testing.TB) registry.Registry { return open(t, wrong) }
	h.Secrets = []string{wrongPassword, guarded.Use(t).Password}
	h.Lacks = map[registrytest.Capability]string{
		registrytest.AnyServiceName: "a path can't carry / \\ % and ; and clients split a name at its commas",
		registrytest.Conditional:    "no request has a condition; within one process a lock does",
		registrytest.Durable:        "the registry is in the server's memory",
		registrytest.Tags:           "an instance of Eureka has none; metadata does",
	}
	return h
}

// configOf is that of a client which renews nothing, and whose entries must not end in the middle of a test.
func configOf(t *testing.T, server *eureka.Server) registry.Config {
	t.Helper()
	cfg := at(server.Endpoint)
	if server.User != "" {
		cfg.Auth = registry.Auth{Username: server.User, PasswordFile: drivertest.File(t, server.Password+"\n")}
	}
	cfg.Options = options(server, 30, 3600)
	return cfg
}

func options(server *eureka.Server, renewal, duration int) json.RawMessage {
	return fmt.Appendf(nil, `{"renewalIntervalInSecs":%d,"durationInSecs":%d,"listStalenessInSecs":%d}`,
		renewal, duration, int(server.Staleness.Seconds()))
}

func at(endpoint string) registry.Config { return registry.Config{Cluster: "test", Endpoint: endpoint} }

func open(t testing.TB, cfg registry.Config) *driver.Registry {
	t.Helper()
	return drivertest.Open[*driver.Registry](t, driver.New, cfg)
}
