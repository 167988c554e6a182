package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	installation "github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

const (
	// clusterName is the manager's.
	clusterName = "demo"
	// drain exceeds all that a client may be behind: one refresh of what it knows, and one request.
	drain = 2 * (rollout.RefreshEvery + rollout.RequestTimeout)
	// enoughGlances is how often the applications' entries must have been looked for to mean something.
	enoughGlances = 50
	// failuresShown bounds how many failed requests the result tells of.
	failuresShown = 10
)

// options are what the variables say.
type options struct {
	driver string
	keep   bool
	app    string // what registers itself; empty where nothing does
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
	err := w.startBackend(ctx, o)
	if w.backend != nil {
		defer func() { w.backend.stop() }()
	}
	if err != nil {
		return err
	}
	if w.cluster, err = cluster.Start(ctx, cluster.Options{Log: out, PodCIDR: podsOf(o.app)}); err != nil {
		return err
	}
	defer w.cluster.Stop()
	w.k8s = w.cluster.Client()
	pods, stopPods, err := podserver.Start(ctx, w.k8s, end)
	if err != nil {
		return err
	}
	defer stopPods()
	w.pods = pods
	if o.app != "" {
		stopField, err := w.startField(ctx, o.app, end)
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

// startBackend starts the registry, with a door for those who write; applications that register themselves have ports of their
// own. The backend must be stopped where there is one, also after an error.
func (w *world) startBackend(ctx context.Context, o options) (err error) {
	if w.backend, err = backends()[o.driver](ctx); err != nil {
		return fmt.Errorf("starting the registry of driver %s: %w", o.driver, err)
	}
	w.out.line("registry: %s, %s", o.driver, w.backend.about)
	if o.app != "" {
		return nil
	}
	return w.backend.openDoor(ctx)
}

// startField has the applications of all pods register themselves until stop is called.
func (w *world) startField(ctx context.Context, app string, end context.CancelCauseFunc) (stop func(), err error) {
	if w.field, err = w.backend.field(ctx, app); err != nil {
		return nil, fmt.Errorf("starting the applications: %w", err)
	}
	w.out.line("applications register themselves %s", w.field.clients)
	ctx, cancel := context.WithCancel(ctx)
	stop = func() {
		cancel()
		w.field.stop()
	}
	if w.apps, err = startApps(ctx, w.k8s, w.field, cmp.Or(w.field.port, w.pods.Port), end); err != nil {
		stop()
		return nil, fmt.Errorf("starting the applications: %w", err)
	}
	return stop, nil
}

// config is the manager's. Applications register themselves under their pods' namespace.
func (w *world) config() string {
	section, name := w.backend.section, "{label:app}"
	if w.field != nil {
		section, name = cmp.Or(w.field.section, section)+", registeredBy: App"+w.field.options, "{namespace}"
	}
	return fmt.Sprintf(`cluster: %s
registry: {%s}
hooks:
  owned: [example.com/*]
service:
  name: %q
drain: %s
`, clusterName, section, name, w.drain())
}

func (w *world) drain() time.Duration {
	if w.field != nil {
		return cmp.Or(w.field.drain, 2*drain) // the clients that applications have are behind in more places
	}
	return drain
}

// startManager starts the manager with what the kubectl plugin looks for: the ConfigMap and the Lease of an installation.
func (w *world) startManager(ctx context.Context) error {
	w.out.line("manager: building")
	started := time.Now()
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: installation.Namespace, Name: "rollcall-config"},
		Data:       map[string]string{"config.yaml": w.config()},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installation.Namespace}}
	err := kube.Create(ctx, w.k8s, namespace, config, installation.LeaseGivenBack(installation.Namespace))
	if err != nil {
		return err
	}
	dir := filepath.Join(w.cluster.Dir(), "demo")
	w.manager, err = manager.Run(ctx, w.cluster.Config(), dir, w.config(),
		"--leader-elect=true", "--leader-election-namespace="+installation.Namespace)
	if err != nil {
		return err
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

// arm is a way to keep a registry in step with the pods.
type arm struct {
	name, namespace string
	// hooks: Rollcall does it, and OpenKruise asks before it goes on.
	hooks bool
	// sleeps: the pods sleep in preStop, and OpenKruise waits before it updates one in place.
	sleeps bool
	title  string
	about  []string
}

// arms are those of the demo, Rollcall's first.
func (w *world) arms() []arm {
	with := arm{name: "Rollcall", namespace: "with-rollcall", hooks: true, title: "1. WITH ROLLCALL", about: []string{
		"The CloneSet has all three hooks. OpenKruise stops at PreparingNormal, PreparingUpdate, Updated and",
		"PreparingDelete; Rollcall tells the registry, and then releases the hook. A pod that was taken out",
		fmt.Sprintf("stays up for the drain of %s, for clients that still know it: this one reads the registry every %s,",
			w.drain(), rollout.RefreshEvery),
		fmt.Sprintf("and sends %d requests a second all the while.", time.Second/rollout.RequestEvery),
		"",
		"An update takes a pod out of rotation (in etcd and ZooKeeper: absent) and back in; a deletion makes",
		"it absent. If the registry fails, Rollcall tries again within seconds. REQUEST FAILED shows the first",
		"failed request of each pod in a step, and the step's last line counts them all.",
	}}
	if w.field != nil {
		return []arm{with, {name: "no hooks", namespace: "without-rollcall", title: "2. WITHOUT", about: []string{
			"The same CloneSet without hooks, in the same registry: OpenKruise does not ask. Each application",
			w.field.ends + ". The same steps, and a client of the same kind.",
		}}}
	}
	return []arm{
		with,
		{name: "preStop and mirror", namespace: "with-prestop", sleeps: true, title: "2. WITH PRESTOP AND A MIRROR", about: []string{
			"What a careful team does without Rollcall. Another registry follows the pods' readiness, within a tenth",
			fmt.Sprintf("of a second and after the fact. The pods serve for %d s more when they have to stop, by a preStop sleep,", sleepSeconds),
			fmt.Sprintf("and OpenKruise waits for %d s between unready and the new image (gracePeriodSeconds).", sleepSeconds) +
				" Same steps, same client.",
		}},
		{name: "mirror", namespace: "with-mirror", title: "3. WITH A MIRROR ALONE", about: []string{
			"The same mirror of readiness, and pods that stop immediately.",
		}},
	}
}

// lives shows each arm's life and says how they went.
func (w *world) lives(ctx context.Context, keep bool) error {
	var first *life
	var outcomes []outcome
	for _, a := range w.arms() {
		l, err := w.liveAs(ctx, a)
		if err != nil {
			return err
		}
		if first == nil {
			first = l
		}
		outcomes = append(outcomes, outcome{arm: a.name, tally: l.traffic.Tally(), failures: l.traffic.Failures()})
	}
	err := conclude(w.out, outcomes, w.apps.account())
	if keep {
		err = errors.Join(err, w.keep(ctx, first))
	}
	return err
}

// liveAs plays an arm's life, and removes its CloneSet, except for Rollcall's.
func (w *world) liveAs(ctx context.Context, a arm) (*life, error) {
	w.out.banner(a.title, a.about...)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := w.backend
	if !a.hooks && w.field == nil {
		var err error
		if b, err = w.startMirror(ctx, a.namespace); err != nil {
			return nil, err
		}
		defer b.stop()
	}
	l, err := w.lifeOf(ctx, a, b)
	if err != nil {
		return nil, err
	}
	if err := l.play(ctx); err != nil || a.hooks {
		return l, err
	}
	return l, w.k8s.Delete(ctx, l.set.DeepCopy())
}

// startMirror has a mirror keep a registry of its own in step with the pods of a namespace until ctx ends.
func (w *world) startMirror(ctx context.Context, namespace string) (*backend, error) {
	b := httpBackend(ctx, rollout.MirrorCluster)
	if err := b.openDoor(ctx); err != nil {
		b.stop()
		return nil, err
	}
	at := registry.Config{Endpoint: "http://" + b.door.Address}
	mirror, err := rollout.NewMirror(ctx, w.k8s, namespace, w.pods.Port, httpregistry.New, at)
	if err != nil {
		b.stop()
		return nil, err
	}
	go mirror.Run(ctx)
	return b, nil
}

// lifeOf makes an arm's life. Where applications register themselves, it is in their registry, by their clients; else in b.
func (w *world) lifeOf(ctx context.Context, a arm, b *backend) (*life, error) {
	port := w.pods.Port
	if w.field != nil {
		port = cmp.Or(w.field.port, port)
	}
	set, err := clonesetFor(a, port)
	if err != nil {
		return nil, err
	}
	requests, reader := rollout.ClientOptions{Read: b.read, Tell: w.out.tell}, b.read
	if w.field != nil {
		if w.field.services != nil {
			set.Spec.Template.Annotations[service.AnnotationServices] = w.field.services(a.namespace)
		}
		reads, err := w.field.client(ctx, a.namespace)
		if err != nil {
			return nil, fmt.Errorf("starting a client of the registry: %w", err)
		}
		requests.Read, reader = w.apps.named(reads), w.apps.named(w.field.reader(a.namespace))
		requests.Via, requests.Timeout = w.field.via[a.namespace], w.field.timeout
	}
	return &life{
		CloneSet: rollout.CloneSet{K8s: w.k8s, Key: client.ObjectKeyFromObject(set)}, k8s: w.k8s, out: w.out, set: set, door: b.door,
		read: reader, traffic: rollout.NewClient(requests),
	}, nil
}

// keep leaves everything running until ctx ends.
func (w *world) keep(ctx context.Context, with *life) error {
	kubectl, err := servers.Client(ctx, servers.Kubectl, w.out)
	if err != nil {
		return err
	}
	w.out.heading("Everything keeps running until Ctrl-C. In another terminal, in this folder:")
	w.out.line("make build-plugin")
	w.out.line(`export KUBECONFIG=%s PATH="$PWD/bin:$PATH:%s"`, w.cluster.Kubeconfig(), filepath.Dir(kubectl))
	w.out.line(`kubectl -n %s patch cloneset %s --type=json -p '[{"op":"replace","path":"%s","value":"web:v4"}]'`,
		with.Key.Namespace, with.Key.Name, "/spec/template/spec/containers/0/image")
	w.out.line("kubectl rollcall status -A -w")
	name := serviceName
	if w.field != nil {
		name = with.Key.Namespace
	}
	w.out.line("%s", w.backend.look(name))
	w.out.line("kubectl rollcall history %s -n %s -f %s\n", with.Key.Name, with.Key.Namespace, w.manager.LogPath())
	before := with.traffic.Tally()
	w.out.line("%s", columns())
	err = with.during(ctx, func() error {
		<-ctx.Done()
		return w.crash()
	})
	w.out.line("\nstopping: %s since then", with.traffic.Tally().Since(before))
	return err
}

// outcome is what came of the requests of an arm, with those that failed.
type outcome struct {
	arm      string
	tally    rollout.Tally
	failures []rollout.Failure
}

// conclude says how many requests failed in each arm, of which Rollcall's is the first, and what became of the applications'
// entries where they register themselves. It returns command.ErrFailed where that is not as it should be.
func conclude(out *screen, all []outcome, entries *account) error {
	out.heading("Result")
	for _, o := range all {
		out.line("%-25s%s", "with "+o.arm+":", o.tally)
	}
	with, others := all[0], all[1:]
	failed := with.tally.Failed > 0
	if failed {
		out.line("With Rollcall none may fail. The first that did:")
		for _, f := range with.failures[:min(failuresShown, len(with.failures))] {
			out.tell(f.At, f.Pod, f.Why)
		}
	}
	if n := with.tally.Requests; n < enoughRequests {
		failed = true
		out.line("%d requests are too few to tell: it takes %d.", n, enoughRequests)
	}
	total, lost := with.tally.Requests, ""
	for _, o := range others {
		total += o.tally.Requests
		lost += fmt.Sprintf(", %d with %s", o.tally.Failed, o.arm)
		if o.tally.Failed == 0 {
			failed = true
			out.line("None failed with %s either, so this run tells nothing.", o.arm)
		}
	}
	if entries == nil {
		out.line("demo: %d requests; failed: %d with Rollcall%s", total, with.tally.Failed, lost)
	} else {
		failed = concludeEntries(out, entries) || failed
		out.line("adopt: %d requests, %d failed, %d foreign entries removed; %d failed without",
			with.tally.Requests, with.tally.Failed, len(entries.removed), others[0].tally.Failed)
	}
	if failed {
		return command.ErrFailed
	}
	return nil
}

// concludeEntries tells whether an application has lost its entry, or too few looks were taken to tell.
func concludeEntries(out *screen, entries *account) (failed bool) {
	out.line("%-25slooked for %d times", "entries:", entries.glances)
	for _, of := range entries.removed {
		out.line("The entry of %s was removed while its application ran.", of)
	}
	if entries.glances < enoughGlances {
		out.line("%d looks are too few to tell: it takes %d.", entries.glances, enoughGlances)
	}
	return len(entries.removed) > 0 || entries.glances < enoughGlances
}
