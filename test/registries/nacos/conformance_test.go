package nacos_test

import (
	"context"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	driver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

const (
	password = "Secret-1%+ü"
	wrong    = "Wrong-1"
	// placesNamespace is one besides public.
	placesNamespace = "places"
)

// start returns what starts a server that wants a password.
func start(opts nacos.Options) func(context.Context) (*nacos.Server, error) {
	opts.Password = password
	return registries.With(nacos.Start, opts)
}

func open(t testing.TB, cfg registry.Config) *driver.Registry {
	t.Helper()
	return drivertest.Open[*driver.Registry](t, driver.New, cfg)
}

// config is that of a driver for the server, or for any other at the endpoint.
func config(dir testing.TB, endpoint, password string, opts driver.Options) registry.Config {
	dir.Helper()
	var given map[string]any
	raw, err := json.Marshal(opts)
	expect.NoError(dir, err)
	expect.NoError(dir, json.Unmarshal(raw, &given))
	maps.DeleteFunc(given, func(_ string, value any) bool { return value == "" || value == 0.0 }) // neither is the default
	if opts.HeartbeatInterval != 0 {
		given["heartbeatInterval"] = time.Duration(opts.HeartbeatInterval).String()
	}
	raw, err = json.Marshal(given)
	expect.NoError(dir, err)
	cfg := registry.Config{Endpoint: endpoint, Options: raw}
	if password != "" {
		cfg.Auth = registry.Auth{Username: nacos.Admin, PasswordFile: drivertest.File(dir, password+"\n")}
	}
	return cfg
}

// harness is that of a server, with the driver's options. The driver finds the server at the endpoint.
func harness(t *testing.T, s *nacos.Server, endpoint string, opts driver.Options) registrytest.Harness {
	t.Helper()
	// The cases take longer than the default lease, 45 s, and don't renew what they are not about.
	long := opts
	if opts.Ephemeral {
		long.HeartbeatInterval = driverkit.Duration(45 * time.Second)
	}
	h := drivertest.HTTPHarness(driver.New, config(t, endpoint, password, long), http.StatusForbidden, http.StatusServiceUnavailable)
	// There it would have to log in first.
	h.Unreachable = func(t testing.TB) registry.Registry {
		return open(t, config(t, "http://"+registrytest.UnusedAddress(t), password, opts))
	}
	h.Stalled = func(t testing.TB) registry.Registry {
		return open(t, config(t, "http://"+registrytest.SilentAddress(t), password, opts))
	}
	h.WrongCredentials = func(t testing.TB) registry.Registry { return open(t, config(t, endpoint, wrong, opts)) }
	drivertest.Meter(&h, driver.New, config(t, endpoint, password, long), s)
	h.CostGrows = map[string]int{"AppEntries()": -1} // no service has entries of both kinds
	h.LosingAnswers = drivertest.LosingAnswers(driver.New, config(t, endpoint, password, long))
	h.Restart = func(t testing.TB) { expect.NoError(t, s.Restart(t.Context())) }
	placed := long
	placed.Namespace, placed.Group = "{namespace}", "{label:track}"
	h.Placed = func(t testing.TB, cluster string) (registrytest.Placed, [2]string) {
		open := drivertest.Harness(driver.New, config(t, endpoint, password, placed), "").Open
		return open(t, cluster).(registrytest.Placed), [2]string{placesNamespace + "/stable", "public/canary"}
	}
	expect.NoError(t, s.CreateNamespace(t.Context(), placesNamespace))
	h.RefusedPlace = func(t testing.TB, cluster string) (registrytest.Placed, string) {
		return refused(t, s, endpoint, placed, cluster)
	}
	h.App = func(t testing.TB, at registry.Instance) registrytest.App { return newApp(t, s, at) }
	h.Secrets = []string{password, wrong}
	h.Lacks = map[registrytest.Capability]string{
		registrytest.AnyServiceName: "Nacos refuses names with white space, with Chinese characters, and with @@",
		registrytest.Tags:           "an instance of Nacos has none; metadata does",
	}
	if opts.Ephemeral {
		short := opts
		short.HeartbeatInterval = driverkit.Duration(time.Second) // an entry without renewals goes after 66 s
		h.ShortLease = drivertest.Harness(driver.New, config(t, endpoint, password, short), "").Open
		h.Foreign = func(t testing.TB, at registry.Instance) func() {
			a := newApp(t, s, at)
			a.Register()
			return a.Deregister
		}
		h.Lacks[registrytest.Durable] = "Nacos keeps ephemeral instances in memory"
	} // a service of persistent instances has one at each address, and no ephemeral ones: none is foreign
	return h
}

// bareV1 makes one request of version 1 of the API for each call.
func bareV1(t testing.TB, s *nacos.Server) registrytest.Bare {
	t.Helper()
	token, err := s.Login(t.Context(), nacos.Admin, password)
	expect.NoError(t, err)
	client := registries.Client{
		URL: s.Endpoint + "/nacos", HTTP: &http.Client{Transport: &http.Transport{}}, Header: http.Header{"Authorization": {"Bearer " + token}},
	}
	call := func(method, enabled string) func(context.Context, registry.Instance) error {
		return func(ctx context.Context, in registry.Instance) error {
			form := url.Values{
				"serviceName": {in.Service}, "ip": {in.Address}, "port": {strconv.Itoa(in.Port)}, "ephemeral": {"false"}, "clusterName": {"DEFAULT"},
			}
			if enabled != "" {
				meta, err := json.Marshal(in.Meta())
				if err != nil {
					return err
				}
				form.Set("metadata", string(meta))
				form.Set("enabled", enabled)
			}
			_, err := client.Do(ctx, method, "/v1/ns/instance?"+form.Encode(), nil)
			if registries.IsNotFound(err) {
				err = nil
			}
			return err
		}
	}
	return registrytest.Bare{
		Register: call(http.MethodPost, "true"), FailOver: call(http.MethodPut, "false"), Deregister: call(http.MethodDelete, ""),
		Get: call(http.MethodGet, ""),
	}
}

// refused returns a driver whose user may read one namespace, and a place in another one. It can read the first by then.
func refused(t testing.TB, s *nacos.Server, endpoint string, opts driver.Options, cluster string) (registrytest.Placed, string) {
	t.Helper()
	user := "user-of-" + cluster
	expect.NoError(t, s.AddUser(t.Context(), user, password, placesNamespace))
	cfg := config(t, endpoint, password, opts)
	cfg.Auth.Username = user
	made, err := driver.New(t.Context(), cfg)
	expect.NoError(t, err)
	d := made.(registrytest.Placed)
	expect.Soon(t, "the user to be let into its namespace", func() error {
		_, err := d.ListPlace(t.Context(), cluster, placesNamespace+"/stable")
		return err
	})
	return d, "public/stable"
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Most of the time is spent waiting until a server shows its readers what it has acknowledged.
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("16")
	}
	registries.Main(m, shared2, shared3)
}

// TestConformance runs the whole suite on each version of the server, on version 3 by what 3.2 serves. It takes the longest of all tests, and
// servers start one after the other: so its servers come before any other.
func TestConformance(t *testing.T) {
	own := func(version nacos.Version) *nacos.Server { // some cases restart it
		// Restarted, it refuses its users for a while; and it shows its readers sooner what it has acknowledged. That reads the whole service
		// each time, which would count where CPU does.
		opts := nacos.Options{Version: version, CachedUsers: true, PushDelay: 50 * time.Millisecond}
		if drivertest.Others() > 0 {
			opts.PushDelay = 0
		}
		return registries.Use(t, start(opts))
	}
	v3, ephemeral3, v1 := own(nacos.V3), own(nacos.V3), own(nacos.V2)
	t.Parallel()
	expect.Each(t, map[string]func(t *testing.T){
		"v3/persistent": func(t *testing.T) {
			registrytest.Run(t, harness(t, v3, drivertest.Serve(t, only32(t, v3)), driver.Options{}))
		},
		"v3/ephemeral": func(t *testing.T) {
			registrytest.Run(t, harness(t, ephemeral3, drivertest.Serve(t, only32(t, ephemeral3)), driver.Options{Ephemeral: true}))
		},
		"v1": func(t *testing.T) {
			t.Run("persistent", func(t *testing.T) { //nolint:paralleltest // they share a server, and each counts its calls
				h := harness(t, v1, v1.Endpoint, driver.Options{})
				h.Bare = func(t testing.TB) registrytest.Bare { return bareV1(t, v1) }
				registrytest.Run(t, h)
			})
			t.Run("ephemeral", func(t *testing.T) { //nolint:paralleltest // as above
				runCalls(t, harness(t, v1, v1.Endpoint, driver.Options{Ephemeral: true}))
			})
		},
	}, func(t *testing.T, run func(t *testing.T)) {
		run(t)
	})
}

// TestConformanceOfV2 is for the API that the version 2 of the server has besides v1.
func TestConformanceOfV2(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]driver.Options{
		"persistent": {APIVersion: "v2"},
		"ephemeral":  {APIVersion: "v2", Ephemeral: true},
	}, func(t *testing.T, opts driver.Options) {
		s := shared2.Use(t)
		runCalls(t, harness(t, s, s.Endpoint, opts))
	})
}

// aboutTheServer matches the cases that ask the same of the server whatever API is spoken: races and long lists.
var aboutTheServer = regexp.MustCompile("^Concurrent|Races|Thousand|NeverBehind|AgainAndAgain")

// runCalls runs the cases about what a call says and what its answer means. [TestConformance] runs the others on the same
// version of the server.
func runCalls(t *testing.T, h registrytest.Harness) {
	t.Helper()
	open := h.Open
	h.Open = func(t testing.TB, cluster string) registry.Registry {
		if aboutTheServer.MatchString(path.Base(t.Name())) {
			t.Skip("TestConformance asks the server this")
		}
		return open(t, cluster)
	}
	h.Restart = nil
	registrytest.Run(t, h)
}
