package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// catchUp is how long a scenario goes on after everything has settled, so that its last failures are counted in it.
const catchUp = 2 * time.Second

// site is what depends on where the cluster runs.
type site interface {
	// KillManagers ends every manager of Rollcall at once, with no chance to tidy up. They are started again.
	KillManagers(ctx context.Context) error
	// StopKruise ends OpenKruise's manager, and StartKruise starts it again and returns when its webhooks are served.
	StopKruise(ctx context.Context) error
	StartKruise(ctx context.Context) error
	// StopNode has a node and all that runs on it stand still, and StartNode has it go on.
	StopNode(ctx context.Context, name string) error
	StartNode(ctx context.Context, name string) error
	// RestartKubelet restarts a node's kubelet, which makes each pod there unready until its next probe.
	RestartKubelet(ctx context.Context, node string) error
	// ShutNodeDown has a node's kubelet end its pods since the machine is shut down, and returns when the power is off. StartNode
	// starts it again.
	ShutNodeDown(ctx context.Context, name string) error
}

// options say where and what to play.
type options struct {
	config   *rest.Config
	site     site
	built    string // the folder with Rollcall's manifests, and with certificates
	program  string // Consul's
	registry string // the address at which pods find Consul
	dir      string // for logs
	// endpoints is the process of the EndpointSlice controller, if the registry is a Kubernetes Service for each arm; 0: it is Consul.
	endpoints int

	scenarios []scenario
	out       io.Writer
	failures  io.Writer // gets every request that failed
}

// world is a cluster with OpenKruise and Rollcall, a registry, and the arms with their clients.
type world struct {
	options

	k8s       client.Client
	directory directory
	consul    *consulServer // nil with services
	arms      []*arm
	others    bool // the registries of durations.yaml run
}

// play deploys Rollcall and the arms, plays the scenarios and reports.
func play(ctx context.Context, o options) error {
	k8s, err := cluster.NewClient(o.config)
	if err != nil {
		return err
	}
	launcher := process.NewLauncher()
	defer launcher.Close()
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &world{options: o, k8s: k8s}
	manifest, err := w.startRegistry(ctx, launcher)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := w.deploy(ctx, manifest); err != nil {
		return err
	}
	if err := w.managersShow(ctx, memoryLimit); err != nil {
		return err
	}
	w.say("Rollcall is ready after %s", time.Since(started).Round(time.Second))
	return w.playAll(ctx, &background)
}

// playAll plays the scenarios, and reports those that the arms of the table play.
func (w *world) playAll(ctx context.Context, background *sync.WaitGroup) error {
	var failed error
	var rows []row
	for _, s := range w.scenarios {
		r, err := w.playOne(ctx, s, background)
		switch {
		case errors.Is(err, command.ErrFailed):
			failed = err
		case err != nil:
			_ = report(w.out, rows) // the sums of those before
			return fmt.Errorf("scenario %q: %w", s.name, err)
		case s.alone == nil:
			rows = append(rows, r)
		}
	}
	if rows == nil {
		return failed
	}
	return errors.Join(report(w.out, rows), failed)
}

// startRegistry returns the manifest of a Rollcall that keeps it.
func (w *world) startRegistry(ctx context.Context, l *process.Launcher) (manifest string, err error) {
	if w.endpoints != 0 {
		w.directory, err = watchEndpointSlices(ctx, w.config, w.endpoints)
		return servicesManifest, err
	}
	w.consul, err = startConsul(ctx, l, w.options)
	w.directory = w.consul
	return rollcallManifest, err
}

func (w *world) say(format string, args ...any) {
	fmt.Fprintf(w.out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// startArms creates the arms, unless they are there, waits until their pods are in rotation, and lets their clients begin.
func (w *world) startArms(ctx context.Context, background *sync.WaitGroup) error {
	if w.arms != nil {
		return nil
	}
	started := time.Now()
	for _, name := range armNames() {
		a := w.newArm(name, nil)
		a.services, a.clients = w.endpoints != 0, newCustomers(w.directory, name)
		w.arms = append(w.arms, a)
		if err := a.create(ctx); err != nil {
			return err
		}
		if hooked(name) || a.services { // the EndpointSlice controller is a mirror of readiness
			continue
		}
		mirror, err := rollout.NewMirror(ctx, w.k8s, a.Key.Namespace, appPort, consul.New, registry.Config{
			Endpoint: fmt.Sprintf("https://127.0.0.1:%d", writersPort), TLS: registry.TLS{CAFile: filepath.Join(w.built, caFile)},
		})
		if err != nil {
			return err
		}
		background.Go(func() { mirror.Run(ctx) })
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	took := time.Since(started).Round(time.Second)
	w.say("%d arms with %d pods each are in rotation after %s", len(w.arms), replicas, took)
	for _, a := range w.arms {
		for _, c := range a.clients.all {
			stop := c.Start(ctx)
			background.Go(func() { <-ctx.Done(); stop() })
		}
	}
	return nil
}

// settle returns when every arm has settled.
func (w *world) settle(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, a := range w.arms {
		group.Go(func() error { return a.settle(groupCtx) })
	}
	return group.Wait()
}

// playOne plays a scenario alone, or in all arms at the same time, and then counts the requests since the one before.
func (w *world) playOne(ctx context.Context, s scenario, background *sync.WaitGroup) (row, error) {
	if s.alone != nil {
		w.say("%s", s.name)
		return row{}, s.alone(ctx, w)
	}
	if err := w.startArms(ctx, background); err != nil {
		return row{}, err
	}
	return w.playInArms(ctx, s)
}

func (w *world) playInArms(ctx context.Context, s scenario) (row, error) {
	w.say("%s", s.name)
	started := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, a := range w.arms {
		if s.play != nil {
			group.Go(func() error { return s.play(groupCtx, a) })
		}
	}
	if s.beside != nil {
		group.Go(func() error { return s.beside(groupCtx, w) })
	}
	err := group.Wait()
	if err == nil {
		err = w.settle(ctx)
	}
	r := row{scenario: s.name, lossy: s.lossy, took: time.Since(started), arms: map[string]result{}}
	wait.Pause(ctx, catchUp)
	for _, a := range w.arms {
		r.arms[a.name] = a.clients.take()
		for _, f := range r.arms[a.name].failures {
			fmt.Fprintf(w.failures, "%s\t%s\t%s\n", s.name, a.name, lineOf(f))
		}
	}
	tell(w.out, r)
	return r, err
}
