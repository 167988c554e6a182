package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// parallelScenarios is how many scenarios run at once where -parallel does not say: most of the time they wait.
const parallelScenarios = "8"

func TestMain(m *testing.M) {
	if mark := os.Getenv(managerMark); mark != "" {
		if mark == markLeaveNothing {
			os.Exit(leaveNothing())
		}
		app.Main(append(builtin.Registries(), app.WithRegistry("unlisted", newUnlisted))...)
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	log.SetLogger(logr.Discard()) // without one, the library writes a stack after 30 s, into whichever test runs
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallelScenarios); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := env.start(); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		env.stop()
		return 1
	}
	code := m.Run()
	if err := errors.Join(env.faults(), env.leaks()); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	env.stop()
	fmt.Fprintf(os.Stderr, "integration: %d scenarios in %s\n", env.scenarios.Load(), time.Since(env.started).Round(time.Second))
	return code
}

// env is what all scenarios share. TestMain makes it; there is nowhere else that a test binary could keep it.
var env environment

type environment struct {
	started  time.Time
	dir      string
	cluster  *cluster.Cluster
	client   client.WithWatch
	history  *watched
	registry *registryServer
	shared   *rollcall
	// account is what managers run as: the ServiceAccount that ships.
	account *rest.Config
	// zones are those of the nodes.
	zones     map[string]string
	cancel    context.CancelFunc
	scenarios atomic.Int64

	mu          sync.Mutex
	managers    []*rollcall
	credentials []string
}

func (e *environment) start() error {
	e.started = time.Now()
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	if e.dir, err = os.MkdirTemp("", "rollcall-integration-"); err != nil {
		return err
	}
	if e.cluster, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(e.dir, "cluster"), Log: os.Stderr}); err != nil {
		return err
	}
	e.client = e.cluster.Client()
	if e.account, err = account.Install(ctx, e.cluster.Config()); err != nil {
		return err
	}
	owned, marks := []string{"example.com/*", "example.io/*"}, []string{"example.com/newly-create", "example.io/initialing"}
	if err := account.Restrict(ctx, e.cluster.Config(), owned, marks); err != nil {
		return err
	}
	if err := e.giveZones(ctx); err != nil {
		return err
	}
	if e.history, err = watchPods(ctx, e.client); err != nil {
		return err
	}
	if err := e.history.followSets(ctx, e.client); err != nil {
		return err
	}
	e.registry = newRegistryServer()
	e.shared, err = e.manager("shared", e.account, defaultConfiguration(e.registry.URL(), sharedNamespaces()...))
	if err != nil {
		return err
	}
	if err := e.shared.Start(); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return e.shared.AwaitReady(ready)
}

// giveZones puts each node into a zone of its own.
func (e *environment) giveZones(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := e.client.List(ctx, &nodes); err != nil {
		return err
	}
	e.zones = map[string]string{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		e.zones[node.Name] = "zone-of-" + node.Name
		patch := kube.Merge(`{"metadata":{"labels":{%q:%q}}}`, corev1.LabelTopologyZone, e.zones[node.Name])
		if err := e.client.Patch(ctx, node.DeepCopy(), patch); err != nil {
			return err
		}
	}
	return nil
}

// manager makes a manager that reaches the API server as somebody. Its log is looked at when the run ends.
func (e *environment) manager(name string, as *rest.Config, config configuration, flags ...string) (*rollcall, error) {
	m, err := newManager(e.dir, name, as, config, flags...)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.managers = append(e.managers, m)
	return m, nil
}

func (e *environment) all() []*rollcall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.managers)
}

// faults says what went wrong beside the scenarios: a data race in a manager, a server that died.
func (e *environment) faults() error {
	var all error
	for _, m := range e.all() {
		if fault := m.Fault(); fault != "" {
			all = errors.Join(all, fmt.Errorf("in the log of manager %s:\n%s", m.Name, fault))
		}
	}
	return errors.Join(all, e.history.Err(), e.cluster.Err())
}

func (e *environment) stop() {
	for _, m := range e.all() {
		m.Stop()
		m.proxy.Stop()
	}
	if e.cancel != nil {
		e.cancel()
	}
	if e.cluster != nil {
		e.cluster.Stop()
	}
	if e.dir != "" && os.Getenv("ROLLCALL_INTEGRATION_KEEP") == "" {
		_ = os.RemoveAll(e.dir)
	}
}
