package etcd_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// shared is the server of all tests that don't restart it.
var shared = registries.Share(registries.With(etcd.Start, etcd.Options{}))

func TestMain(m *testing.M) { registries.Main(m, shared) }

// patience bounds every wait for what is known to come.
const patience = time.Minute

const (
	rootPassword = "root-s3cret"
	password     = "rollcall-s3cret"
	// writer may read and write below services/ and rollcall/, stranger may do nothing.
	writer, stranger = "rollcall", "stranger"
)

func start(t *testing.T, opts etcd.Options) *etcd.Server {
	t.Helper()
	return registries.Use(t, registries.With(etcd.Start, opts))
}

// startWithUsers starts a server that asks for a certificate and a password.
func startWithUsers(t *testing.T) *etcd.Server {
	t.Helper()
	s := start(t, etcd.Options{ClientCertificates: true, RootPassword: rootPassword})
	addUsers(t, connect(t, s, "root", rootPassword))
	return s
}

// addUsers makes the users that the tests have.
func addUsers(t *testing.T, root *clientv3.Client) {
	t.Helper()
	must := func(_ any, err error) {
		t.Helper()
		expect.NoError(t, err)
	}
	must(root.RoleAdd(t.Context(), writer))
	for _, prefix := range []string{"services/", "rollcall/"} {
		must(root.RoleGrantPermission(t.Context(), writer, prefix, clientv3.GetPrefixRangeEnd(prefix),
			clientv3.PermissionType(clientv3.PermReadWrite)))
	}
	for _, user := range []string{writer, stranger} {
		must(root.UserAdd(t.Context(), user, password))
	}
	must(root.UserGrantRole(t.Context(), writer, writer))
}

// bare writes next to the driver's entries of a service.
func bare(c *clientv3.Client) registrytest.Bare {
	key := func(in registry.Instance) string { return "services/" + in.Service + "/bare-" + in.Endpoint() }
	remove := func(ctx context.Context, in registry.Instance) error {
		_, err := c.Delete(ctx, key(in))
		return err
	}
	return registrytest.Bare{
		Register: func(ctx context.Context, in registry.Instance) error {
			value, err := json.Marshal(map[string]any{"Op": 0, "Addr": in.Endpoint(), "Metadata": in.Meta()})
			if err == nil {
				_, err = c.Put(ctx, key(in), string(value))
			}
			return err
		},
		FailOver: remove, Deregister: remove,
		Get: func(ctx context.Context, in registry.Instance) error {
			_, err := c.Get(ctx, key(in))
			return err
		},
	}
}

// connect returns etcd's own client.
func connect(t *testing.T, s *etcd.Server, user, password string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.URL()}, TLS: s.TLSConfig(), Username: user, Password: password,
		DialTimeout: patience, Logger: zap.NewNop(),
	})
	expect.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// config is that of a driver which this server lets in.
func config(t *testing.T, s *etcd.Server) registry.Config {
	t.Helper()
	cfg := registry.Config{Endpoint: s.URL(), TLS: registry.TLS{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile}}
	if s.WithUsers() {
		cfg.Auth = registry.Auth{Username: writer, PasswordFile: drivertest.File(t, password)}
	}
	return cfg
}

func open(t testing.TB, cfg registry.Config) *driver.Registry {
	t.Helper()
	return drivertest.Open[*driver.Registry](t, driver.New, cfg)
}

// harness is that of the drivers with this configuration, on a server that the tests have for themselves. Those of
// wrong users are on a server with users.
func harness(t *testing.T, s *etcd.Server, cfg registry.Config, withUsers *etcd.Server) registrytest.Harness {
	t.Helper()
	as := func(user, password string) func(t testing.TB) registry.Registry {
		wrong := config(t, withUsers)
		wrong.Auth = registry.Auth{Username: user, PasswordFile: drivertest.File(t, password)}
		wrong.Options = cfg.Options
		return func(t testing.TB) registry.Registry { return open(t, wrong) }
	}
	others := registersItself(t, s, cfg)
	h := drivertest.Harness(driver.New, cfg, "http://")
	h.LosingAnswers = drivertest.LosingAnswers(driver.New, cfg)
	drivertest.Meter(&h, driver.New, cfg, s)
	h.Bare = func(testing.TB) registrytest.Bare { return bare(connect(t, s, "", "")) }
	h.Foreign = func(_ testing.TB, at registry.Instance) func() { return others(at) }
	h.Copy = copies(t, s, cfg)
	h.Refusing, h.WrongCredentials = as(stranger, password), as(writer, "not-"+password)
	h.Failing = func(t testing.TB) (registry.Registry, func() int) {
		var attempts atomic.Int64
		address := drivertest.ServeGRPC(t, grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			attempts.Add(1)
			return status.Error(codes.Unavailable, "etcdserver: no leader")
		})))
		return open(t, registry.Config{Endpoint: "http://" + address, Options: cfg.Options}), func() int { return int(attempts.Load()) }
	}
	h.Restart = func(t testing.TB) { expect.NoError(t, s.Restart(t.Context())) }
	h.Secrets = []string{password, rootPassword}
	h.Lacks = map[registrytest.Capability]string{
		registrytest.OutOfServiceState: "a gRPC client is given every entry",
		registrytest.Tags:              "an endpoint of gRPC has none; metadata does",
	}
	return h
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := start(t, etcd.Options{})
	registrytest.Run(t, harness(t, s, config(t, s), startWithUsers(t)))
}

// TestConformanceWithUser has client certificates, a user with no more rights than documented, and a target of its own.
func TestConformanceWithUser(t *testing.T) {
	t.Parallel()
	s := startWithUsers(t)
	cfg := config(t, s)
	cfg.Options = json.RawMessage(`{"target": "rollcall/{service}/grpc"}`)
	registrytest.Run(t, harness(t, s, cfg, s))
}

func TestConformanceWithLease(t *testing.T) {
	t.Parallel()
	s := start(t, etcd.Options{})
	cfg := config(t, s)
	cfg.Options = json.RawMessage(`{"lease": "5m"}`)
	h := harness(t, s, cfg, startWithUsers(t))
	h.ShortLease = drivertest.Harness(driver.New, withOptions(cfg, `{"lease": "60s"}`), "").Open
	registrytest.Run(t, h)
}

// pod returns an instance of a cluster and service that no other test has.
func pod(address string, port int) registry.Instance {
	id := strings.ToLower(rand.Text()[:8])
	return registry.Instance{
		Service: "svc-" + id, Address: address, Port: port,
		Cluster: "cluster-" + id, Namespace: "shop", Pod: "web-" + id, UID: "uid-" + id,
	}
}

// copies returns how somebody copies the entry of an instance to another key of its service.
func copies(t *testing.T, s *etcd.Server, cfg registry.Config) func(t testing.TB, of registry.Instance) (remove func()) {
	t.Helper()
	user, secret := "", ""
	if s.WithUsers() {
		user, secret = "root", rootPassword
	}
	c := connect(t, s, user, secret)
	ctx := context.WithoutCancel(t.Context())
	return func(t testing.TB, of registry.Instance) func() {
		t.Helper()
		elsewhere, apart := of, drivertest.Harness(driver.New, cfg, "http://").Open(t, of.Cluster)
		elsewhere.Service += "-copied-from" // its entry is written as the driver writes it, and moved
		expect.NoError(t, apart.Register(ctx, elsewhere))
		all, err := c.Get(ctx, "", clientv3.WithPrefix())
		expect.NoError(t, err)
		var key string
		for _, kv := range all.Kvs {
			if from := string(kv.Key); strings.Contains(from, elsewhere.Service+"/") {
				key = strings.ReplaceAll(from, elsewhere.Service, of.Service) + "-copy"
				_, err = c.Put(ctx, key, strings.ReplaceAll(string(kv.Value), elsewhere.Service, of.Service))
				expect.NoError(t, err)
			}
		}
		expect.NoError(t, apart.Deregister(ctx, elsewhere))
		return func() {
			if _, err := c.Delete(ctx, key); err != nil {
				t.Errorf("removing the copy: %v", err)
			}
		}
	}
}

// registersItself returns how an application puts its own entry there, with a key of its own as etcd's package
// naming/endpoints leaves it to each.
func registersItself(t *testing.T, s *etcd.Server, cfg registry.Config) func(at registry.Instance) (remove func()) {
	t.Helper()
	user, secret := "", ""
	if s.WithUsers() {
		user, secret = "root", rootPassword
	}
	app := connect(t, s, user, secret)
	options := struct{ Target, Format string }{Target: "services/{service}"}
	if len(cfg.Options) > 0 {
		expect.NoError(t, json.Unmarshal(cfg.Options, &options))
	}
	folder, value := strings.ReplaceAll(options.Target, "{service}", "SERVICE")+"/", `{"Op":0,"Addr":"ADDRESS","Metadata":null}`
	if f, is := formats[options.Format]; is {
		folder, value = path.Dir(f.key)+"/", f.app
	}
	return func(at registry.Instance) func() {
		endpoint := net.JoinHostPort(strings.Trim(at.Address, "[]"), strconv.Itoa(at.Port))
		fill := strings.NewReplacer("SERVICE", at.Service, "ADDRESS", endpoint, "HOST", at.Address, "PORT", strconv.Itoa(at.Port)).Replace
		key := fill(folder) + "app-" + rand.Text()
		ctx := context.WithoutCancel(t.Context())
		if _, err := app.Put(ctx, key, fill(value)); err != nil {
			t.Errorf("registering as an application: %v", err)
		}
		return func() {
			if _, err := app.Delete(ctx, key); err != nil {
				t.Errorf("deregistering as an application: %v", err)
			}
		}
	}
}
