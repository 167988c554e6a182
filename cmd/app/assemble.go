package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/controller"
	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/idle"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/resync"
	rightsof "github.com/rollcall-dev/rollcall/internal/rights"
	"github.com/rollcall-dev/rollcall/internal/statuspage"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// assemble makes each concern of those before it, puts the configuration in force, and adds everything that runs to the manager.
func (a *app) assemble(ctx context.Context, c *config.Config, limits config.Limits, own *prometheus.Registry) error {
	leader, err := newDirect(a.manager.GetConfig(), a.manager.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client of the API server: %w", err)
	}
	about := a.newConfigEvents(leader)
	may := &rights{
		server: a.direct, namespaces: a.namespaces.watched, webhook: a.features.Evictions.Name, needs: a.needs(), events: about,
		logger: a.logger.WithName("rights"),
	}
	pods := a.newPods(own, may)
	compares := a.newComparing(c, own, pods, about)
	evicts, err := a.newEvicting(own, pods.synced, leader, may.of(rightsof.Evictions).there)
	if err != nil {
		return err
	}
	follows := &following{logger: a.logger, pods: pods, compares: compares, evicts: evicts}
	follows.apply(a.drivers.inForce())
	shows := &showing{app: a, pods: pods, compares: compares, evicts: evicts}
	shows.register(own)
	page := statuspage.New(shows.facts, a.pageAccess())
	runnables, err := a.listen(ctx, own, page, shows.unready, evicts.served)
	if err != nil {
		return err
	}
	a.options.slices.Cluster = endpointslice.Cluster{
		Cache: a.manager.GetCache(), Pod: a.cachedPods.Get, Informers: a.manager.GetCache(), Failure: a.watchFailures.ofEndpointSlices,
		Wake: pods.reconciler.Wake, Again: pods.reconciler.Again,
	}
	runnables = append(runnables, may, pods, pods.asks, a.options.slices,
		&after{Runnable: pods.conditions(), there: may.of(rightsof.PodCondition).there},
		a.newReload(limits, own, follows, about), compares, page, &resting{release: giveBack, spare: make([]byte, spareBytes)}, a.namespaces)
	if a.lease != nil {
		a.lease.failing = pods.failing
		runnables = append(runnables, a.requests(leader, compares.resync))
	}
	return a.add(runnables...)
}

// pods is the work on pods: it fills the caches, and then starts the controllers.
type pods struct {
	*kruise

	manager    ctrl.Manager
	tracker    *tracker.Tracker
	state      *clusterstate.State
	identity   *clusterstate.Identity
	reconciler *controller.PodReconciler
	enrolls    *enroll.Reconciler
	asks       *idle.Asker
	// mayEnroll is closed once the controller that enrolls workloads may run; nil if it is off.
	mayEnroll <-chan struct{}
	// listed is closed once resync has listed every registry that can.
	listed chan struct{}
}

func (a *app) newPods(own *prometheus.Registry, may *rights) *pods {
	p := &pods{
		manager: a.manager, tracker: tracker.New(), listed: make(chan struct{}),
		state:    clusterstate.New(a.supposed(a.manager.GetClient()), a.cachedPods, a.namespaces.scope),
		identity: clusterstate.NewIdentity(a.manager.GetAPIReader(), a.logger.WithName("identity")), mayEnroll: may.of(rightsof.Enroll).there,
	}
	writer, recorder := a.written()
	p.asks = idle.New(idle.Options{Wake: func(id lifecycle.PodID) { p.reconciler.Wake(id) }, Clock: clock.RealClock{}})
	condition := may.of(rightsof.PodCondition)
	p.reconciler = controller.New(controller.Options{
		Client: writer, Pods: a.cachedPods, APIReader: a.supposed(a.manager.GetAPIReader()), Recorder: recorder,
		Tracker: p.tracker, State: p.state, Identity: p.identity,
		Releases: metrics.NewReleaseMetrics(own), Trace: a.traces.reconciles(),
		PodCondition: func() bool { return isClosed(condition.there) }, NoCondition: condition.lacking,
		Asker: p.asks, History: a.history, WithoutNodes: !a.namespaces.reach.nodes,
		Workers: config.Workers, Clock: clock.RealClock{}, Ahead: a.lease.aheadOfLast, Listed: p.listed,
	})
	p.enrolls = enroll.New(writer, recorder, p.reconciler.NameRefused, a.namespaces.scope)
	p.kruise = &kruise{informers: a.manager.GetCache(), failures: a.watchFailures, setup: p.setup, withoutNodes: !a.namespaces.reach.nodes}
	return p
}

// written returns what writes to the API server, which a dry run only reports.
func (a *app) written() (client.Client, events.EventRecorder) {
	if a.dryRun != nil {
		reads := a.manager.GetClient()
		return &dryClient{Client: reads, reads: a.supposed(reads), run: a.dryRun}, &dryRecorder{run: a.dryRun}
	}
	return a.manager.GetClient(), &shortNotes{a.manager.GetEventRecorder(controllerName)}
}

// setup adds the controller of pods to the manager.
func (p *pods) setup(context.Context) error { return p.reconciler.SetupWithManager(p.manager) }

// Start fills the caches, and adds the controller that enrolls workloads once it may run.
func (p *pods) Start(ctx context.Context) error {
	if err := p.kruise.Start(ctx); err != nil || p.mayEnroll == nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-p.mayEnroll:
		return p.enrolls.SetupWithManager(p.manager)
	}
}

// conditions has every pod reconciled, for its condition.
func (p *pods) conditions() manager.RunnableFunc {
	return func(context.Context) error {
		p.reconciler.Again()
		return nil
	}
}

// comparing compares the registries with the cluster, once no call of a process before this one may land.
type comparing struct {
	*settling

	resync *resync.Resync
}

func (a *app) newComparing(c *config.Config, own *prometheus.Registry, p *pods, about *configEvents) *comparing {
	options := resync.Options{
		Cluster: c.Cluster, Scope: p.state.Scope, Listed: p.listed, Synced: p.synced,
		Pods: &resync.Cluster{
			Cache: a.manager.GetClient(), Pods: a.cachedPods, API: a.manager.GetAPIReader(), Synced: p.synced,
			Tracker: p.tracker, Claims: p.state.Claims, Clock: clock.RealClock{},
		},
		Identity: p.identity,
		Tell:     func(ctx context.Context, kind, reason, note string) { about.tell(ctx, kind, "Resync", reason, note) },
		Metrics:  metrics.NewResyncMetrics(own),
		History:  a.history, Logger: a.logger.WithName("resync"),
	}
	if a.lease != nil {
		options.LeaseNamespace = a.leaseNamespace
	}
	compares := &comparing{resync: resync.New(options)}
	compares.settling = &settling{Runnable: compares.resync, until: a.settles(), logger: a.logger}
	return compares
}

// following puts configurations in force.
type following struct {
	logger   logr.Logger
	pods     *pods
	compares *comparing
	evicts   *evicting
}

// apply gives a configuration and its registries to those who work with it.
func (f *following) apply(all *registries) {
	s := settings(all)
	warnOfShortDrains(&s, f.logger)
	f.pods.reconciler.Apply(s)
	f.evicts.apply(all.config.Hooks, s.Drain.Max)
	f.pods.enrolls.Apply(all.config)
	f.compares.resync.Apply(resync.Policy(all.config.Resync), s.Registries)
}

func (a *app) newReload(limits config.Limits, own *prometheus.Registry, follows *following, about *configEvents) *reload {
	return &reload{
		path: a.flags.config, limits: limits, interval: reloadInterval,
		drivers: a.drivers, apply: follows.apply, metrics: metrics.NewConfigMetrics(own), logger: a.logger, events: about,
	}
}

// showing is what the metrics, the status page and /readyz show.
type showing struct {
	*app

	pods     *pods
	compares *comparing
	evicts   *evicting
}

func (s *showing) register(own *prometheus.Registry) {
	metrics.RegisterBuild(own, s.options.version, s.drivers.inForce().config.Cluster)
	metrics.RegisterReady(own, s.unready)
	metrics.RegisterPods(own, s.pods.reconciler.Waits, s.pods.state.Workloads.Unmatched, time.Now)
	metrics.RegisterSlots(own, s.drivers.slots)
	metrics.RegisterEntries(own, s.entries)
}

// entries counts those of each registry in force, also where it has none.
func (s *showing) entries() map[metrics.Entries]int {
	counts := map[metrics.Entries]int{}
	for name := range s.drivers.inForce().drivers() {
		for _, state := range []entries.State{entries.In, entries.Out, entries.Unacknowledged} {
			counts[metrics.Entries{Registry: name, State: string(state)}] = 0
		}
	}
	s.pods.tracker.EachSeen(func(seen tracker.Seen) {
		counts[metrics.Entries{Registry: seen.In.Registry, State: string(statuspage.StateOf(seen))}]++
	})
	return counts
}

// unready returns why the manager is not ready, or nothing.
func (s *showing) unready() string {
	return cmp.Or(s.pods.unready(), s.compares.unready(), s.evicts.unready())
}

// facts are what the status page is built from.
func (s *showing) facts() statuspage.Facts {
	f := statuspage.Facts{
		Manager: statuspage.Manager{
			Leads: isClosed(s.manager.Elected()), DryRun: s.dryRun != nil, NotReady: s.unready(), Approve: orders.Command(s.leaseNamespace),
			Version: s.options.version,
		},
		Drivers: s.drivers.inForce().drivers(), Clients: s.drivers.slots(), Resyncs: s.compares.resync.Status(),
		Waits: s.pods.reconciler.Waits(), Circumstances: s.pods.reconciler.Circumstances(),
	}
	s.pods.tracker.EachSeen(func(seen tracker.Seen) { f.Instances = append(f.Instances, seen) })
	f.Name, f.Leader = s.lease.pods()
	return f
}

// listen binds the addresses, and returns what has to run next to the servers.
func (a *app) listen(
	ctx context.Context, own *prometheus.Registry, page *statuspage.Page, unready func() string, evictions served,
) ([]manager.Runnable, error) {
	metrics, err := a.newMetricsServer(own, page)
	if err != nil {
		return nil, err
	}
	return slices.Concat(evictions.runnables, metrics.runnables),
		a.servers.listen(ctx, a.flags, metrics, healthHandler(unready), evictions)
}

func (a *app) newConfigEvents(leader client.Client) *configEvents {
	about := &configEvents{elected: a.manager.Elected(), dryRun: a.dryRun, logger: a.logger}
	if podNamespace() != "" && a.dryRun == nil {
		about.server = leader
	}
	return about
}

// requests reads a person's approval of removals from the Lease.
func (a *app) requests(leader client.Client, resyncs *resync.Resync) *requests {
	return &requests{
		server: leader, lease: client.ObjectKey{Namespace: a.leaseNamespace, Name: orders.Lease}, resync: resyncs,
		logger: a.logger.WithName("resync"),
	}
}

// add makes the manager run all of these, and the servers.
func (a *app) add(runnables ...manager.Runnable) error {
	for _, server := range a.servers.runnables {
		runnables = append(runnables, server)
	}
	for _, runnable := range runnables {
		if err := a.manager.Add(runnable); err != nil {
			return fmt.Errorf("adding %T to the manager: %w", runnable, err)
		}
	}
	return nil
}
