package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/mirror"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/traffic"
)

const (
	namespaceWith    = "with-rollcall"
	namespaceWithout = "without-rollcall"
	// drain exceeds all that a client may be behind: one refresh of what it knows, and one request.
	drain = 2 * (traffic.RefreshEvery + traffic.RequestTimeout)
	// enoughGlances is how often the applications' entries must have been looked for to mean something.
	enoughGlances = 50
	// failuresShown bounds how many failed requests the result tells of.
	failuresShown = 10
)

// options are what the variables say.
type options struct {
	driver      string
	keep, adopt bool
}

// world is what both lives run on.
type world struct {
	out     *screen
	cluster *cluster.Cluster
	k8s     client.WithWatch
	pods    *podserver.Server
	backend *backend
	manager *manager.Manager
	// field and apps are nil where Rollcall owns the entries.
	field *field
	apps  *apps
}

// run is the whole demo. It returns when everything that it started is stopped.
func run(ctx context.Context, out *screen, o options) error {
	parent := ctx
	ctx, end := context.WithCancelCause(parent)
	defer end(nil)
	w := &world{out: out}
	out.heading("Start the registry, Kubernetes, OpenKruise and Rollcall's manager")
	var err error
	if w.backend, err = backends()[o.driver](ctx); err != nil {
		return fmt.Errorf("starting the registry of driver %s: %w", o.driver, err)
	}
	defer w.backend.stop()
	out.line("registry: %s, %s", o.driver, w.backend.about)
	if w.cluster, err = cluster.Start(ctx, cluster.Options{Log: out}); err != nil {
		return err
	}
	defer w.cluster.Stop()
	stopPods, err := w.servePods(ctx, end)
	if err != nil {
		return err
	}
	defer stopPods()
	if o.adopt {
		stopField, err := w.startField(ctx, end)
		if err != nil {
			return err
		}
		defer stopField()
	}
	if err := w.startManager(ctx); err != nil {
		return err
	}
	defer w.manager.Stop()
	go w.watchOver(ctx, end)

	err = w.lives(ctx, o.keep)
	if err == nil || errors.Is(err, command.ErrFailed) || parent.Err() != nil {
		return err
	}
	out.line("\nThe end of the manager's log:\n%s\n", w.manager.Tail())
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// servePods makes the client, and lets the pods answer until stop is called.
func (w *world) servePods(ctx context.Context, end context.CancelCauseFunc) (stop func(), err error) {
	if w.k8s, err = cluster.NewClient(w.cluster.Config()); err != nil {
		return nil, err
	}
	w.pods, stop, err = podserver.Start(ctx, w.k8s, end)
	return stop, err
}

// startField has the applications of all pods register themselves until stop is called.
func (w *world) startField(ctx context.Context, end context.CancelCauseFunc) (stop func(), err error) {
	if w.field, err = w.backend.field(ctx); err != nil {
		return nil, fmt.Errorf("starting the applications: %w", err)
	}
	w.out.line("applications register themselves %s", w.field.clients)
	ctx, cancel := context.WithCancel(ctx)
	stop = func() {
		cancel()
		w.field.stop()
	}
	if w.apps, err = startApps(ctx, w.k8s, w.field, w.pods.Port, end); err != nil {
		stop()
		return nil, fmt.Errorf("starting the applications: %w", err)
	}
	return stop, nil
}

// config is the manager's. Applications register themselves under their pods' namespace.
func (w *world) config() string {
	section, name := w.backend.section, "{label:app}"
	if w.field != nil {
		section, name = section+", registeredBy: App"+w.field.options, "{namespace}"
	}
	return fmt.Sprintf(`cluster: demo
registry: {%s}
hooks:
  owned: [example.com/*]
service:
  name: %q
drain: %s
`, section, name, w.drain())
}

func (w *world) drain() time.Duration {
	if w.field != nil {
		return 2 * drain // the clients that applications have are behind in more places
	}
	return drain
}

func (w *world) startManager(ctx context.Context) error {
	w.out.line("manager: building")
	started := time.Now()
	var err error
	dir := filepath.Join(w.cluster.Dir(), "demo")
	if w.manager, err = manager.Run(ctx, w.cluster.Config(), dir, w.config()); err != nil {
		return err
	}
	if w.backend.read == nil {
		url, err := w.manager.URL(manager.MemoryServer, "/v1/instances")
		if err != nil {
			return err
		}
		w.backend.read, w.backend.look = read.Listed(url), func(string) string { return "curl " + url }
	}
	w.out.line("manager: ready after %s", time.Since(started).Round(time.Millisecond))
	return nil
}

// watchOver ends the demo when the manager, the registry or a server of the cluster ends by itself.
func (w *world) watchOver(ctx context.Context, end context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-w.manager.Process().Done():
		end(w.crash())
	case <-w.cluster.Done():
		end(w.crash())
	case <-w.backend.done:
		end(w.crash())
	}
}

// crash says which process ended by itself, nil where none did.
func (w *world) crash() error {
	select {
	case <-w.manager.Process().Done():
		return w.manager.Process().Crashed()
	case <-w.backend.done:
		return w.backend.err()
	default:
		return w.cluster.Err()
	}
}

// lives shows both lives and says how they went.
func (w *world) lives(ctx context.Context, keep bool) error {
	with, err := w.withRollcall(ctx)
	if err != nil {
		return err
	}
	without, err := w.withoutRollcall(ctx)
	if err != nil {
		return err
	}
	verdict := conclude(w.out, outcomeOf(with.traffic), outcomeOf(without.traffic), w.apps.account())
	if keep {
		err = w.keep(ctx, with)
	}
	return errors.Join(verdict, err)
}

func (w *world) withRollcall(ctx context.Context) (*life, error) {
	w.out.banner("1. WITH ROLLCALL",
		"The CloneSet has all three hooks. Kruise stops at PreparingNormal, PreparingUpdate, Updated and",
		"PreparingDelete; Rollcall tells the registry, and then lets Kruise go on. A pod that was taken out",
		fmt.Sprintf("stays up for the drain of %s, for clients that still know it: this one reads the registry every %s,",
			w.drain(), traffic.RefreshEvery),
		fmt.Sprintf("and sends %d requests a second all the while.", time.Second/traffic.RequestEvery))
	l, err := w.lifeIn(ctx, namespaceWith, true, w.backend.read)
	if err != nil {
		return nil, err
	}
	l.atLeast = enoughRequests
	return l, l.play(ctx)
}

func (w *world) withoutRollcall(ctx context.Context) (*life, error) {
	if w.field != nil {
		return w.withoutHooks(ctx)
	}
	w.out.banner("2. WITHOUT",
		"The same CloneSet without hooks: Kruise does not ask. Another registry follows the pods' readiness,",
		"within a tenth of a second and without fail, but after the fact. The same steps, and the same client.")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store, err := newStore(ctx)
	if err != nil {
		return nil, err
	}
	go mirror.New(w.k8s, store, namespaceWithout, w.pods.Port).Run(ctx)
	l, err := w.lifeIn(ctx, namespaceWithout, false, func(ctx context.Context) ([]registry.Entry, error) {
		return store.List(ctx, mirror.Cluster)
	})
	if err != nil {
		return nil, err
	}
	return l, l.playAndRemove(ctx)
}

// withoutHooks is the life of the same applications in the same registry, which register and deregister themselves.
func (w *world) withoutHooks(ctx context.Context) (*life, error) {
	w.out.banner("2. WITHOUT",
		"The same CloneSet without hooks, in the same registry: Kruise does not ask. Each application deregisters",
		"itself when it ends, as on SIGTERM. The same steps, and a client of the same kind.")
	l, err := w.lifeIn(ctx, namespaceWithout, false, nil)
	if err != nil {
		return nil, err
	}
	return l, l.playAndRemove(ctx)
}

// lifeIn makes a life in a namespace. Where applications register themselves, it is in their registry, by their clients;
// else in what reader reads.
func (w *world) lifeIn(ctx context.Context, namespace string, hooks bool, reader read.Reader) (*life, error) {
	set, err := clonesetFor(namespace, w.pods.Port, hooks)
	if err != nil {
		return nil, err
	}
	client := reader
	if w.field != nil {
		if client, err = w.field.client(ctx, namespace); err != nil {
			return nil, fmt.Errorf("starting a client of the registry: %w", err)
		}
		client, reader = w.apps.named(client), w.apps.named(w.field.reader(namespace))
	}
	return &life{
		k8s: w.k8s, out: w.out, namespace: namespace, set: set,
		read: reader, traffic: traffic.New(traffic.Options{Read: client, Tell: w.out.tell}),
	}, nil
}

// keep leaves everything running until ctx ends.
func (w *world) keep(ctx context.Context, with *life) error {
	w.out.heading("Everything keeps running until Ctrl-C. In another terminal:")
	w.out.line("export KUBECONFIG=%s", w.cluster.Kubeconfig())
	w.out.line("kubectl -n %s scale clone/%s --replicas=4", with.namespace, with.set.Name)
	service := serviceName
	if w.field != nil {
		service = with.namespace
	}
	w.out.line("%s", w.backend.look(service))
	if metrics, err := w.manager.URL(manager.MetricsServer, "/metrics"); err == nil {
		w.out.line("curl %s", metrics)
	}
	w.out.line("tail -f %s\n", w.manager.LogPath())
	before := with.traffic.Tally()
	w.out.line("%s", columns())
	err := with.during(ctx, func() error {
		<-ctx.Done()
		return w.crash()
	})
	w.out.line("\nstopping: %s since then", with.traffic.Tally().Since(before))
	return err
}

// outcome is what came of a life's requests, with those that failed.
type outcome struct {
	tally    traffic.Tally
	failures []traffic.Failure
}

func outcomeOf(client *traffic.Client) outcome {
	return outcome{tally: client.Tally(), failures: client.Failures()}
}

// conclude says how many requests failed, and what became of the applications' entries where they register themselves. It
// returns command.ErrFailed where that is not as it should be.
func conclude(out *screen, with, without outcome, entries *account) error {
	a, b := with.tally, without.tally
	out.heading("Result")
	out.line("with Rollcall:  %s", a)
	out.line("without:        %s", b)
	if a.Failed > 0 {
		out.line("With Rollcall none may fail. The first that did:")
		for _, f := range with.failures[:min(failuresShown, len(with.failures))] {
			out.tell(f.At, f.Pod, f.Why)
		}
	}
	if a.Requests < enoughRequests {
		out.line("%d requests are too few to tell: it takes %d.", a.Requests, enoughRequests)
	}
	if b.Failed == 0 {
		out.line("None failed without Rollcall either, so this run tells nothing.")
	}
	failed := a.Failed > 0 || a.Requests < enoughRequests || b.Failed == 0
	if entries == nil {
		out.line("demo: %d requests, %d failed with rollcall; %d failed without", a.Requests, a.Failed, b.Failed)
	} else {
		failed = concludeEntries(out, entries) || failed
		out.line("adopt: %d requests, %d failed, %d foreign entries removed; %d failed without",
			a.Requests, a.Failed, len(entries.removed), b.Failed)
	}
	if failed {
		return command.ErrFailed
	}
	return nil
}

// concludeEntries tells whether an application has lost its entry, or too few looks were taken to tell.
func concludeEntries(out *screen, entries *account) (failed bool) {
	out.line("entries:        looked for %d times", entries.glances)
	for _, of := range entries.removed {
		out.line("The entry of %s was removed while its application ran.", of)
	}
	if entries.glances < enoughGlances {
		out.line("%d looks are too few to tell: it takes %d.", entries.glances, enoughGlances)
	}
	return len(entries.removed) > 0 || entries.glances < enoughGlances
}
