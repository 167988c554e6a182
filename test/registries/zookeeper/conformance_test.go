package zookeeper_test

import (
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	driver "github.com/rollcall-dev/rollcall/registry/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

const (
	user     = "rollcall"
	password = "s3cret-password"
)

// harness is that of a server which is restarted, with drivers of this configuration.
func harness(t *testing.T, s *zookeeper.Server, cfg registry.Config) registrytest.Harness {
	t.Helper()
	stranger := mutual.Use(t)
	if cfg.Endpoint == "" {
		cfg.Endpoint = s.Endpoint
	}
	at := func(t testing.TB, endpoint string) registry.Registry {
		return open(t, registry.Config{Endpoint: endpoint, Options: cfg.Options})
	}
	h := drivertest.Harness(driver.New, cfg, "")
	h.LosingAnswers = drivertest.LosingAnswers(driver.New, cfg)
	drivertest.Meter(&h, driver.New, cfg, s)
	h.Bare = func(t testing.TB) registrytest.Bare { return bare(connect(t, s.Endpoint)) }
	h.CostGrows = map[string]int{"Get": 40} // a folder can be asked for all names in it, not for those that are new
	h.Refusing = func(t testing.TB) registry.Registry { return at(t, answering(t, noAuth, new(atomic.Int64))) }
	h.Failing = func(t testing.TB) (registry.Registry, func() int) {
		var requests atomic.Int64
		return at(t, answering(t, connectionLoss, &requests)), func() int { return int(requests.Load()) }
	}
	// A wrong password is shown only by what it may not do; see TestWrongPassword.
	h.WrongCredentials = func(rt testing.TB) registry.Registry {
		other := secure.Use(t)
		return open(rt, registry.Config{
			Endpoint: stranger.SecureEndpoint,
			TLS:      registry.TLS{CAFile: stranger.CAFile, CertFile: other.CertFile, KeyFile: other.KeyFile},
			Options:  cfg.Options,
		})
	}
	h.Foreign = func(t testing.TB, at registry.Instance) func() {
		return registerItself(t, connect(t, s.Endpoint), "/services", at)
	}
	h.Copy = func(t testing.TB, of registry.Instance) func() {
		return copyEntry(t, connect(t, s.Endpoint), "/services", of)
	}
	h.Restart = func(t testing.TB) { expect.NoError(t, s.Restart(t.Context())) }
	h.Secrets = []string{password}
	h.Lacks = map[registrytest.Capability]string{
		registrytest.AnyServiceName: "a znode's name has no slash, and Curator's readers know no escapes",
		registrytest.Tags:           "an instance of Curator has none; metadata does",
	}
	return h
}

// What ZooKeeper's KeeperException calls CONNECTIONLOSS and NOAUTH.
const connectionLoss, noAuth = -4, -102

// answering is a server that answers each request with one error, and counts them: what no real one can be made to do.
func answering(t testing.TB, code int, requests *atomic.Int64) (endpoint string) {
	t.Helper()
	return drivertest.Accepting(t, "127.0.0.1", func(conn net.Conn) {
		drivertest.ServeZooKeeper(conn, func(int, []byte) (int, []byte) {
			requests.Add(1)
			return code, nil
		})
	})
}

// removing is for the option outOfRotation: delete.
func removing(h registrytest.Harness) registrytest.Harness {
	h.Lacks[registrytest.OutOfServiceState] = "the entry is deleted: no state is heeded by all readers"
	return h
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := use(t, zookeeper.Options{})
	registrytest.Run(t, removing(harness(t, s, registry.Config{})))
}

func TestConformanceWithStates(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]json.RawMessage{
		"SpringsStatus": options("payload", "spring", "outOfRotation", "status"),
		"Enabled":       options("payload", "map", "outOfRotation", "enabled"),
	}, func(t *testing.T, options json.RawMessage) {
		registrytest.Run(t, harness(t, use(t, zookeeper.Options{}), registry.Config{Options: options}))
	})
}

func TestConformanceWithDigestAndChroot(t *testing.T) {
	t.Parallel()
	s := use(t, zookeeper.Options{})
	create(t, connect(t, s.Endpoint), "/platform/discovery", openACL())
	h := removing(harness(t, s, registry.Config{
		Endpoint: s.Endpoint + "/platform/discovery",
		Auth:     registry.Auth{Username: user, PasswordFile: drivertest.File(t, password+"\n")},
		Options:  options("base", "/"),
	}))
	h.Foreign = func(t testing.TB, at registry.Instance) func() {
		return registerItself(t, connect(t, s.Endpoint, user+":"+password), "/platform/discovery", at)
	}
	h.Copy = func(t testing.TB, of registry.Instance) func() {
		return copyEntry(t, connect(t, s.Endpoint, user+":"+password), "/platform/discovery", of)
	}
	registrytest.Run(t, h)
}
