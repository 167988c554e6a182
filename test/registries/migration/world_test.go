package migration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	// drain is longer than clients take to notice on a slow machine, the second that Eureka's own cache may be behind included.
	drain = 12 * time.Second
	// Eureka's leases end as soon as they may, and are renewed many times.
	renewal, lease = 2 * time.Second, 24 * time.Second

	fromEureka, toNacos = "eureka", "nacos"
)

// world is what all migrations run on.
type world struct {
	k8s     client.WithWatch
	port    int // at which every pod answers
	eureka  *eureka.Server
	nacos   *nacos.Server
	cluster *cluster.Cluster
	manager *manager.Manager
	// dir outlives all tests.
	dir string

	starts int
	// stopped is set where the manager does not run.
	stopped bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log.SetLogger(logr.Discard()) // the libraries ask for one
	w := &world{
		eureka: registries.Use(t, registries.With(eureka.Start, eureka.Options{})),
		nacos:  registries.Use(t, registries.With(nacos.Start, nacos.Options{Version: nacos.V3})),
		dir:    t.TempDir(),
	}
	var err error
	w.cluster, err = cluster.Start(t.Context(), cluster.Options{Log: os.Stderr, Dir: filepath.Join(w.dir, "cluster"), PodCIDR: "127.102.0.0/16"})
	expect.NoError(t, err)
	t.Cleanup(w.cluster.Stop)
	w.k8s = w.cluster.Client()
	w.port = podserver.Use(t, w.k8s)
	w.startManager(t, fromEureka)
	t.Cleanup(w.stopManager)
	return w
}

func (w *world) startManager(t *testing.T, defaults ...string) {
	t.Helper()
	w.starts++
	dir := filepath.Join(w.dir, fmt.Sprintf("manager-%d", w.starts))
	var err error
	w.manager, err = manager.Run(t.Context(), w.cluster.Config(), dir, w.config(defaults))
	expect.NoError(t, err)
	w.stopped = false
}

func (w *world) stopManager() {
	if !w.stopped {
		w.manager.Stop()
	}
	w.stopped = true
}

// defaultsTo has the configuration name the registries of pods that name none themselves.
func (w *world) defaultsTo(t *testing.T, names ...string) {
	t.Helper()
	expect.NoError(t, w.manager.Configure(w.config(names)))
}

func (w *world) config(defaults []string) string {
	return fmt.Sprintf(`cluster: migration
registries:
- {name: %s, default: %t, driver: eureka, endpoint: %q, readerLag: 3s, options: {renewalIntervalInSecs: %.0f, durationInSecs: %.0f}}
- {name: %s, default: %t, driver: nacos, endpoint: %q}
hooks:
  owned: [example.com/*]
service:
  name: "{label:app}"
drain: %s
`, fromEureka, slices.Contains(defaults, fromEureka), w.eureka.Endpoint, renewal.Seconds(), lease.Seconds(),
		toNacos, slices.Contains(defaults, toNacos), w.nacos.Endpoint, drain)
}

// reader looks a service up in a registry as its clients do.
func (w *world) reader(registry, service string) read.Reader {
	if registry == fromEureka {
		return read.Eureka(w.eureka.Endpoint, service)
	}
	return read.Nacos(w.nacos.Endpoint+"/nacos", service)
}

func (w *world) await(t *testing.T, what string, look func(context.Context) error) {
	t.Helper()
	expect.Soon(t, what, func() error {
		expect.NoError(t, w.manager.Process().Crashed())
		return look(t.Context())
	}, w.manager.Tail)
}
