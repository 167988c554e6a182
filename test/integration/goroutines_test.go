package integration

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	etcdserver "github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// watchFilter is a bug of Kubernetes' libraries, https://github.com/kubernetes/kubernetes/issues/113254: where a watch of
// metadata (here of the nodes) is stopped with an event in its hands, the goroutine that filters it never ends.
func watchFilter() goleak.Option {
	return goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")
}

// leaveNothing is the manager until SIGTERM, and returns its exit code: 0 where it ended well and no goroutine of it is
// left. Only what ran before it began is not its own.
func leaveNothing() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	before := goleak.IgnoreCurrent()
	logger := zap.New()
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	err := app.Run(ctx, os.Args[1:], append(builtin.Registries(), app.WithLogger(logger))...)
	if err == nil {
		err = goleak.Find(before, watchFilter())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leaving nothing behind:", err)
		return 1
	}
	return 0
}

// TestNoGoroutineIsLeft: a manager that led rollouts, with connections to registries and entries that it renewed there, and
// that changed to other registries in the middle, has ended all that it began when it has stopped.
func TestNoGoroutineIsLeft(t *testing.T) {
	t.Parallel()
	const name, leased = "no-goroutine-left", "leased"
	etcd, err := etcdserver.Start(t.Context(), etcdserver.Options{})
	expect.NoError(t, err)
	t.Cleanup(etcd.Stop)
	// Every value makes other registries of the same servers.
	config := func(timeout string) configuration {
		c := defaultConfiguration("", name)
		delete(c, "registry")
		c["registries"] = []map[string]any{
			{"name": onlyRegistry, "default": true, "driver": "http", "endpoint": env.registry.URL(), "timeout": timeout},
			{
				"name": leased, "default": true, "driver": "etcd", "endpoint": etcd.URL(), "timeout": timeout,
				"options": map[string]any{"lease": "60s"},
			},
		}
		return c
	}
	direct := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, account.WriteKubeconfig(direct, env.account))
	m := prepareManager(t, name, env.account, config("4s"), append(elect(t, name+"-lease"),
		"--kubeconfig="+direct)...) // no proxy between: connections as they are in a cluster
	m.Env = asManager(markLeaveNothing)
	restart(t, m)
	s := newScenario(t, m, env.registry, finalizer, name)
	s.troubled = true // registries that are new are asked again
	s.Begin(inPlace, replicas(2))
	s.ExpectMetric(`rollcall_registry_request_duration_seconds_count{.*operation="heartbeat",outcome="ok",registry="leased"} [1-9].*`)

	s.UpdateImage("nginx:2")
	expect.NoError(t, m.Configure(config("3s")))
	s.ExpectLogged("configuration reloaded")
	s.ExpectSteady()
	s.UpdateInPlace("nginx:3", nil)

	expect.NoError(t, m.Process().Terminate())
	if err := m.ended(t); err != nil {
		t.Fatalf("the manager ended with %v:\n%s", err, m.Tail())
	}
}
