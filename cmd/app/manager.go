package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// app is one manager: everything that a run needs, made but not started.
type app struct {
	options *options
	flags   *flags
	logger  logr.Logger
	history history.Log

	manager ctrl.Manager
	// cachedPods are those of the manager's cache.
	cachedPods *clusterstate.PodCache

	drivers *drivers
	servers *servers
	// features are those of the configuration at the start, without those that a dry run leaves out.
	features config.Features
	// traces is nil if they are off.
	traces *traces
	// unfenced is for clients that ask and write whether or not this manager leads, and direct is one.
	unfenced *rest.Config
	direct   client.Client
	// lease is nil without leader election.
	lease          *lease
	leaseNamespace string
	// dryRun is nil but in a dry run.
	dryRun *dryRun
	// watchFailures is written by the cache.
	watchFailures *watchFailures
	namespaces    *namespaces
}

// newManager makes all that can fail at start, in the order in which a user fixes it. It binds the addresses;
// run frees them.
func newManager(ctx context.Context, o *options, f *flags) (_ *app, err error) {
	limits := o.limits(ctx, f)
	a := &app{options: o, flags: f, servers: &servers{}, watchFailures: &watchFailures{}}
	a.logger, a.history = o.log(f)
	defer func() {
		if err != nil {
			a.close(ctx)
		}
	}()
	if o.main {
		setProcess(a.logger, a.flags.pprofAddress != off)
	}
	c, err := config.Load(f.config, limits)
	if err != nil {
		return nil, err
	}
	own := prometheus.NewRegistry()
	if f.dryRun {
		a.dryRun = newDryRun(metrics.NewDryRunMetrics(own), a.logger)
	}
	if err = a.switchOn(ctx, c); err != nil {
		return nil, err
	}
	a.drivers = &drivers{
		constructors: o.constructors, metrics: metrics.NewRegistryMetrics(own), logger: a.logger, fence: a, dryRun: a.dryRun,
		traces: a.traces, history: a.history, version: o.version,
	}
	first, err := a.drivers.open(ctx, c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.config, err), first.closeBut(nil))
	}
	if err = a.drivers.replace(first); err == nil {
		err = a.connect(ctx, c)
	}
	if err == nil {
		err = a.assemble(ctx, c, limits, own)
	}
	if err != nil {
		return nil, errors.Join(err, first.closeBut(nil))
	}
	return a, nil
}

// switchOn takes the features of the configuration, and makes those that must be there first.
func (a *app) switchOn(ctx context.Context, c *config.Config) (err error) {
	var leftOut []string
	if a.features, leftOut, err = a.flags.features(c); err != nil {
		return err
	}
	if len(leftOut) > 0 {
		a.logger.Info("the dry run leaves out the features of these fields of the configuration, because they write", "fields", leftOut)
	}
	a.traces, err = newTraces(ctx, a.options.version)
	return err
}

// close writes what is left of the traces, and frees the addresses.
func (a *app) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
	defer cancel()
	a.traces.close(ctx, a.logger)
	a.servers.close(a.logger)
}

// cluster finds the cluster as kubectl does.
func (o *options) cluster(f *flags) (clientcmd.ClientConfig, *rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	restConfig, err := kubeconfig.ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("no cluster: set --kubeconfig or KUBECONFIG, or run the manager in a cluster: %w", err)
	}
	restConfig.QPS = -1 // the API server's own fairness is the throttle
	restConfig.UserAgent = "rollcall/" + o.version
	return kubeconfig, restConfig, nil
}

// connect makes the controller-runtime manager and the lease.
func (a *app) connect(ctx context.Context, c *config.Config) error {
	kubeconfig, restConfig, err := a.options.cluster(a.flags)
	if err != nil {
		return err
	}
	if a.flags.leaderElect && a.dryRun == nil {
		if a.leaseNamespace = cmp.Or(a.flags.leaseNamespace, podNamespace()); a.leaseNamespace == "" {
			if a.leaseNamespace, _, err = kubeconfig.Namespace(); err != nil {
				return fmt.Errorf("--leader-election-namespace: %w", err)
			}
		}
		if a.lease, err = newLease(restConfig, a.leaseNamespace, c.Lease, a.logger); err != nil {
			return err
		}
	}
	// After the lease was made, which must be renewed even while nothing else may be written.
	a.unfenced = rest.CopyConfig(restConfig)
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		next = &writes{next: next, permit: a.permitWrite}
		if a.traces != nil {
			next = &tracedPatches{next: next, tracer: a.traces}
		}
		return next
	})
	by, err := rest.HTTPClientFor(a.unfenced)
	if err == nil {
		a.direct, err = newDirect(a.unfenced, by)
	}
	if err != nil {
		return fmt.Errorf("making a client of the API server: %w", err)
	}
	a.namespaces = newNamespaces(ctx, a.direct, c.Namespaces, a.logger.WithName("namespaces"))
	a.cachedPods = clusterstate.NewPodCache(a.namespaces.scope)
	a.manager, err = ctrl.NewManager(restConfig, a.managerOptions(c, a.namespaces.watched))
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	a.namespaces.pods = a.cachedPods
	return nil
}

func (a *app) managerOptions(c *config.Config, namespaces []string) ctrl.Options {
	options := ctrl.Options{
		Scheme:         newScheme(),
		MapperProvider: mapper,
		Logger:         a.logger,
		Cache:          cacheOptions(namespaces, a.watchFailures.failed, a.cachedPods, informers(a.cachedPods, a.namespaces.source())),
		// Rollcall's servers know their addresses, serve its own metrics and report why it is not ready.
		Metrics:                metricsserver.Options{BindAddress: off},
		HealthProbeBindAddress: off,
		PprofBindAddress:       a.flags.pprofAddress,

		LeaseDuration: new(c.Lease.Duration()),
		RenewDeadline: new(c.Lease.RenewDeadline()),
		RetryPeriod:   new(c.Lease.RetryPeriod()),
		// Several managers can run in one process; names of controllers would clash there.
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	}
	if a.lease != nil {
		options.LeaderElection, options.LeaderElectionResourceLockInterface = true, a.lease
	}
	return options
}

// newDirect makes a client of the API server, for what the cache does not have.
func newDirect(config *rest.Config, by *http.Client) (client.Client, error) {
	kinds, err := mapper(config, by)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{HTTPClient: by, Scheme: newScheme(), Mapper: kinds})
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), kruisepolicy.AddToScheme(scheme),
		clusterstate.AddToScheme(scheme), admissionv1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme),
		authorizationv1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)))
	return scheme
}

// mapper knows the kinds that we read without asking the API server, which may not have OpenKruise's CRDs yet.
func mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	for _, list := range []string{"", "List"} { // a cache of several namespaces asks for the kinds of lists too
		m.Add(corev1.SchemeGroupVersion.WithKind("Pod"+list), meta.RESTScopeNamespace)
		m.Add(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"+list), meta.RESTScopeNamespace)
		m.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"+list), meta.RESTScopeNamespace)
		m.Add(kruisev1alpha1.GroupVersion.WithKind(clusterstate.KindCloneSet+list), meta.RESTScopeNamespace)
		m.Add(kruisev1alpha1.GroupVersion.WithKind(clusterstate.KindDaemonSet+list), meta.RESTScopeNamespace)
		m.Add(kruisev1beta1.GroupVersion.WithKind(clusterstate.KindStatefulSet+list), meta.RESTScopeNamespace)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(kruisepolicy.GroupVersion.WithKind("PodUnavailableBudget"), meta.RESTScopeNamespace)
	m.Add(eventsv1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Namespace"),
		admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
		authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
		authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
	} {
		m.Add(kind, meta.RESTScopeRoot)
	}
	return m, nil
}

func cacheOptions(
	namespaces []string, failed toolscache.WatchErrorHandlerWithContext, pods *clusterstate.PodCache, informers newInformer,
) cache.Options {
	hasState, err := labels.Parse(appspub.LifecycleStateKey)
	utilruntime.Must(err)
	options := cache.Options{
		// Nothing but what is named here is ever watched.
		ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler:    failed,
		NewInformer:                 informers,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                {Label: hasState, Transform: pods.Strip},
			&discoveryv1.EndpointSlice{}: {Transform: endpointslice.Strip},
		},
	}
	for object, transform := range clusterstate.Transforms(time.Now) {
		options.ByObject[object] = cache.ByObject{Transform: transform}
	}
	for _, namespace := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options
}

// permitWrite refuses a write to the API server that this manager may not make.
func (a *app) permitWrite() error {
	if a.dryRun != nil {
		return registryclient.ErrDryRun
	}
	return a.Permit(writeTimeout)
}

// Permit implements registryclient.Fence.
func (a *app) Permit(takes time.Duration) error { return a.lease.permit(takes) }

// MayLand implements registryclient.Fence.
func (a *app) MayLand(until time.Time) { a.lease.mayLand(until) }

// run serves until ctx ends. It gives the lease back last, and only if all work has ended.
func (a *app) run(ctx context.Context) error {
	defer a.close(ctx)
	// The lease's client shares them.
	defer utilnet.CloseIdleConnectionsFor(a.manager.GetHTTPClient().Transport)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if a.lease != nil {
		a.lease.deposed = func() { stop(errDeposed) }
	}
	a.namespaces.stop = stop
	a.greet()
	if err := a.manager.Start(working); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	cause := context.Cause(working)
	if errors.Is(cause, errDeposed) {
		return cause
	}
	err := a.drivers.inForce().closeBut(nil)
	if errors.Is(cause, errNamespaces) {
		err = errors.Join(cause, err)
	}
	return errors.Join(err, a.resign(ctx))
}

// resign gives the lease back, once no call that timed out may land any more.
func (a *app) resign(ctx context.Context) error {
	if a.lease == nil {
		return nil
	}
	if left := a.lease.unsettled(); left > 0 {
		a.logger.Info("keeping the lease while calls that timed out may still reach the registry", "for", left.String())
		<-time.After(left)
	}
	return a.lease.release(ctx)
}

func (a *app) greet() {
	lease := "none"
	if a.lease != nil {
		lease = a.lease.Describe()
	}
	at := a.servers.addresses
	a.logger.Info("listening", "metrics", at.Metrics, "health", at.Health, "evictions", at.Evictions)
	a.logger.Info("starting", "version", a.options.version, "dryRun", a.dryRun != nil, "apiServer", a.manager.GetConfig().Host,
		"registries", a.drivers.inForce().drivers(), "lease", lease, "workers", config.Workers,
		"memoryLimit", debug.SetMemoryLimit(-1))
	if a.options.listening != nil {
		a.options.listening(at)
	}
}
