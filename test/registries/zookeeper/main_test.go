package zookeeper_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	driver "github.com/rollcall-dev/rollcall/registry/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// The servers of all tests that don't restart theirs.
var (
	shared = share(zookeeper.Options{})
	secure = share(zookeeper.Options{TLS: true})
	mutual = share(zookeeper.Options{ClientCertificates: true})
)

func share(opts zookeeper.Options) *registries.Shared[*zookeeper.Server] {
	return registries.Share(registries.With(zookeeper.Start, opts))
}

// readers is the reader of all tests.
var readers = registries.Share(zookeeper.StartReader)

func TestMain(m *testing.M) { registries.Main(m, shared, secure, mutual, readers) }

// bound is for what must happen sooner or later.
const bound = time.Minute

// use starts a server for one test.
func use(t *testing.T, opts zookeeper.Options) *zookeeper.Server {
	t.Helper()
	return registries.Use(t, registries.With(zookeeper.Start, opts))
}

// options makes a driver's options of pairs.
func options(pairs ...any) json.RawMessage {
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i].(string)] = pairs[i+1]
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return raw
}

func open(t testing.TB, cfg registry.Config) *driver.Registry {
	t.Helper()
	return drivertest.Open[*driver.Registry](t, driver.New, cfg)
}

// connect makes a client beside the driver, as an operator has one.
func connect(t testing.TB, endpoint string, logIn ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{endpoint}, time.Minute, zk.WithLogger(silent{}))
	expect.NoError(t, err)
	t.Cleanup(conn.Close)
	for _, digest := range logIn {
		expect.NoError(t, conn.AddAuth("digest", []byte(digest)))
	}
	return conn
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// create makes a node and those above it.
func create(t testing.TB, conn *zk.Conn, path string, acl []zk.ACL) {
	t.Helper()
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if _, err := conn.Create(path[:i], []byte{}, zk.FlagPersistent, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatalf("creating %s: %v", path[:i], err)
		}
	}
}

// registerItself makes a node below base as an application with Curator does that registers itself, and returns what removes
// it.
func registerItself(t testing.TB, conn *zk.Conn, base string, at registry.Instance) (remove func()) {
	t.Helper()
	return addNode(t, conn, base, "of-the-application-"+at.Endpoint(), at, nil)
}

// copyEntry copies Rollcall's entry to another ID, with its ownership tag.
func copyEntry(t testing.TB, conn *zk.Conn, base string, of registry.Instance) (remove func()) {
	t.Helper()
	return addNode(t, conn, base, "copy-of-rollcall-"+of.Endpoint(), of, of.Meta())
}

func addNode(t testing.TB, conn *zk.Conn, base, id string, at registry.Instance, metadata map[string]string) (remove func()) {
	t.Helper()
	folder := base + "/" + at.Service
	entry := folder + "/" + id
	create(t, conn, folder, openACL())
	data, err := dataOf(at, id, metadata)
	expect.NoError(t, err)
	if _, err := conn.Create(entry, data, zk.FlagEphemeral, openACL()); err != nil {
		t.Fatalf("creating %s: %v", entry, err)
	}
	return func() {
		if err := conn.Delete(entry, 0); err != nil {
			t.Errorf("removing %s, which was created and which others leave alone: %v", entry, err)
		}
	}
}

func dataOf(at registry.Instance, id string, metadata map[string]string) ([]byte, error) {
	tag, err := json.Marshal(metadata)
	return fmt.Appendf(nil, `{"name":%q,"id":%q,"address":%q,"port":%d,"sslPort":null,"payload":null,`+
		`"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":null,"metadata":%s}`, at.Service, id, at.Address, at.Port, tag), err
}

// bare writes into the folder of the driver's entries.
func bare(conn *zk.Conn) registrytest.Bare {
	id := func(in registry.Instance) string { return "bare-" + in.Endpoint() }
	path := func(in registry.Instance) string { return "/services/" + in.Service + "/" + id(in) }
	remove := func(_ context.Context, in registry.Instance) error {
		err := conn.Delete(path(in), -1)
		if errors.Is(err, zk.ErrNoNode) { // it was taken out before
			err = nil
		}
		return err
	}
	return registrytest.Bare{
		Register: func(_ context.Context, in registry.Instance) error {
			data, err := dataOf(in, id(in), in.Meta())
			if err == nil {
				_, err = conn.Create(path(in), data, zk.FlagPersistent, openACL())
			}
			if errors.Is(err, zk.ErrNodeExists) {
				err = nil
			}
			return err
		},
		FailOver: remove, Deregister: remove,
		Get: func(_ context.Context, in registry.Instance) error {
			_, _, err := conn.Get(path(in))
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			return err
		},
	}
}

func openACL() []zk.ACL { return zk.WorldACL(zk.PermAll) }

// pod returns the instance of a pod, at an address of its own for each n.
func pod(n int) registry.Instance {
	name := fmt.Sprintf("web-%d", n)
	return registry.Instance{
		Service: "web", Address: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), Port: 8080,
		Cluster: "prod-1", Namespace: "shop", Pod: name, UID: "uid-of-" + name,
	}
}

// path is where the entry of an instance is.
func path(base string, in registry.Instance) string {
	return base + "/" + in.Service + "/rollcall-" + in.Endpoint()
}
