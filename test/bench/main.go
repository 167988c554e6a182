package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

func main() {
	const childArgs = 4
	if len(os.Args) == childArgs {
		ctrllog.SetLogger(logr.Discard())
		if err := child(os.Args[1], os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(command.Run("bench", play))
}

func play(ctx context.Context) error {
	s, err := sizesOf(os.Getenv("BENCH"))
	if err != nil {
		return err
	}
	began, out := time.Now(), cmp.Or(os.Getenv("OUT"), filepath.Join("bin", "bench"))
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("OUT: %w", err)
	}
	b := &bench{sizes: s, out: out, say: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "bench %6s  %s\n", time.Since(began).Round(time.Second), fmt.Sprintf(format, args...))
	}}
	parts, err := b.parts(os.Getenv("PART"))
	if err != nil {
		return err
	}
	stop, err := b.open(ctx)
	defer stop()
	if err != nil {
		return err
	}
	ctx, cancel := b.cluster.During(ctx)
	defer cancel()
	if err := b.load.follow(ctx); err != nil {
		return err
	}
	// The API server has much to do for the CRDs.
	if err := idle(ctx, b.cluster.PID("kube-apiserver")); err != nil {
		return err
	}
	for _, p := range parts {
		b.say("%s", p.name)
		if err := p.measure(ctx); err != nil {
			return err
		}
	}
	return b.report(began)
}

// open starts the servers. stop ends everything, also after an error.
func (b *bench) open(ctx context.Context) (stop func(), err error) {
	b.stage = &stage{launcher: process.NewLauncher(), before: os.Getenv("BEFORE")}
	stop = func() {
		b.launcher.Close()
		if b.registry != nil {
			b.registry.Close()
		}
		if b.cluster != nil {
			b.cluster.Stop()
		}
		_ = os.RemoveAll(b.dir)
	}
	if b.dir, err = os.MkdirTemp("", "rollcall-bench-"); err != nil {
		return stop, fmt.Errorf("creating a folder: %w", err)
	}
	b.say("building")
	err = manager.Build(ctx, "github.com/rollcall-dev/rollcall/cmd", filepath.Join(b.dir, theRollcall), "-tags=grpcnotrace")
	if err != nil {
		return stop, err
	}
	b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(b.dir, "cluster"), Log: os.Stderr, APIOnly: true})
	if err != nil {
		return stop, err
	}
	if b.account, err = account.Install(ctx, b.cluster.Config()); err != nil {
		return stop, err
	}
	b.registry = startRegistry(ctx)
	b.driver, b.registryURL, b.inService = "http", b.registry.URL, b.registry.inService
	b.load = &load{
		k8s: b.cluster.Client(), owners: []*kruisev1alpha1.CloneSet{cloneSet(namespace), cloneSet(otherNamespace)}, spread: 1,
		services: serviceCount, pods: map[types.NamespacedName]stay{}, waves: map[goal]*underway{},
	}
	return stop, prepare(ctx, b.load.k8s, b.load.owners)
}
