package builtin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestMain fails where a goroutine is left when all tests are done.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNoCallWaitsForAConnection makes as many calls as the manager may: changes, heartbeats and a list. A call that waits
// for a connection loses its time there, is never sent, and counts as one whose outcome is unknown.
func TestNoCallWaitsForAConnection(t *testing.T) {
	t.Parallel()
	const (
		changes    = 300 // maxInFlight can be raised while the driver is in use
		heartbeats = 32
		calls      = changes + heartbeats + 1
		bound      = 30 * time.Second
	)
	expect.Each(t, map[string]registry.Constructor{
		"consul": consul.New, "eureka": eureka.New, "http": httpregistry.New, "nacos": nacos.New,
	}, func(t *testing.T, newDriver registry.Constructor) {
		arrived := make(chan struct{}, calls)
		done := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-done
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		t.Cleanup(server.Close)
		d, err := newDriver(t.Context(), registry.Config{Endpoint: server.URL, Cluster: "test"})
		expect.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		var all sync.WaitGroup
		for i := range changes {
			all.Go(func() { _ = d.Register(ctx, instance(i)) })
		}
		for i := range heartbeats {
			all.Go(func() { beat(ctx, d, instance(changes+i)) })
		}
		all.Go(func() { _, _ = d.(registry.Lister).List(ctx, "test") })
		await(ctx, t, arrived, calls)
		close(done)
		all.Wait()
	})
}

// TestLintKnowsEveryDriver and refuses an endpoint in the words of the manager that has the drivers.
func TestLintKnowsEveryDriver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	manager := func(configuration string) string {
		expect.NoError(t, os.WriteFile(path, []byte(configuration), 0o600))
		return fmt.Sprint(app.Run(t.Context(), []string{"--check-config", "--config=" + path}, builtin.Registries()...))
	}
	_, supported, _ := strings.Cut(manager("cluster: test\nregistry: {driver: none}\n"), "supported values: ")
	drivers := regexp.MustCompile(`"([a-z]+)"`).FindAllStringSubmatch(supported, -1)
	if len(drivers) != len(builtin.Registries())+1 {
		t.Fatalf("the manager has %q", drivers)
	}
	for _, driver := range drivers {
		refused := 0
		for _, endpoint := range []string{"", "registry:1", "ftp://registry:1", "http://", "http://a:0", "http://a:1,,http://b:1", "http://a:1,http://a:1", "http://a:1/?b", "http://a:1,https://b:1"} {
			configuration := fmt.Sprintf("cluster: test\nregistry: {driver: %s, endpoint: %q}\n", driver[1], endpoint)
			c, err := config.Parse([]byte(configuration), config.Limits{})
			expect.NoError(t, err)
			findings, notes := lint.Registries(c)
			if refused += len(findings); len(notes) > 0 {
				t.Errorf("the manager knows driver %s, and lint notes %q", driver[1], notes)
			}
			for _, f := range findings {
				if said := manager(configuration); !strings.Contains(said, f) {
					t.Errorf("driver %s, endpoint %q: lint finds %q, and the manager says %q", driver[1], endpoint, f, said)
				}
			}
		}
		if want := !slices.Contains([]string{"endpointslice", "memory", "pod"}, driver[1]); refused > 0 != want {
			t.Errorf("lint refuses %d endpoints of driver %s", refused, driver[1])
		}
	}
}

// await returns when so many requests are with the server at the same time.
func await(ctx context.Context, t *testing.T, arrived <-chan struct{}, calls int) {
	t.Helper()
	for n := range calls {
		select {
		case <-arrived:
		case <-ctx.Done():
			t.Errorf("%d of %d calls at once are sent; the others wait for a connection", n, calls)
			return
		}
	}
}

// beat renews an entry where entries expire. Another call stands in for it elsewhere.
func beat(ctx context.Context, d registry.Registry, in registry.Instance) {
	if h, ok := d.(registry.Heartbeater); ok && registry.TraitsOf(d).HeartbeatInterval > 0 {
		_ = h.Heartbeat(ctx, in)
		return
	}
	_ = d.Deregister(ctx, in)
}

func instance(i int) registry.Instance {
	return registry.Instance{
		Service: "web", Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), Port: 8080,
		Cluster: "test", Namespace: "shop", Pod: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("uid-%d", i),
	}
}
