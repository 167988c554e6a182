package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
)

// kruiseInterval is how often the manager looks for OpenKruise until it is there.
const kruiseInterval = 3 * time.Second

// refusalHolds is how long a refused watch counts. A reflector backs off for 30 to 60 s at most before it tries again.
const refusalHolds = 2 * time.Minute

const (
	reasonStarting = "starting"
	reasonAbsent   = "OpenKruise is not installed: no CRD clonesets.apps.kruise.io; " +
		"install OpenKruise (https://openkruise.io/docs/installation), and the manager continues by itself"
	reasonUnsynced = "the caches are not synced yet: "
	reasonRefused  = "the API server refuses a watch, so what this manager knows is out of date: "
)

// metadataType is the type that a reflector names where it reads metadata only.
const metadataType = "*v1.PartialObjectMetadata"

// kruise waits for OpenKruise's CRDs and then starts the controller, on every manager: one that waits for the lease has
// its caches filled when it gets it.
type kruise struct {
	discovery resourceLister
	informers cache.Informers
	// setup adds the controller to the manager.
	setup    func(context.Context) error
	interval time.Duration
	logger   logr.Logger

	absence atomic.Pointer[string]
	watched atomic.Pointer[[]watched]
	// ready is set once the controller was added.
	ready    atomic.Bool
	failures *watchFailures
}

// watchFailures holds the last failure of each reflector, by the type that it names.
type watchFailures struct {
	clock  clock.PassiveClock
	byType sync.Map // of watchFailure
}

type watchFailure struct {
	err error
	at  time.Time
}

func newWatchFailures(c clock.PassiveClock) *watchFailures { return &watchFailures{clock: c} }

// failed is a toolscache.WatchErrorHandlerWithContext.
func (f *watchFailures) failed(ctx context.Context, r *toolscache.Reflector, err error) {
	f.note(r.TypeDescription(), err)
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}

func (f *watchFailures) note(described string, err error) {
	f.byType.Store(described, watchFailure{err: err, at: f.clock.Now()})
}

// of returns the kind's last failure, or nil where none is known. All kinds that are read as metadata share one type: a
// failure that does not name the kind is another kind's.
func (f *watchFailures) of(w watched) error {
	return f.last(w).err
}

// refusal returns why the API server refuses this kind, or nil. A reflector does not report a success, but it repeats a
// request that fails, so a refusal that is not repeated has ended.
func (f *watchFailures) refusal(w watched) error {
	last := f.last(w)
	if !apierrors.IsForbidden(last.err) || f.clock.Since(last.at) > refusalHolds {
		return nil
	}
	return last.err
}

func (f *watchFailures) last(w watched) watchFailure {
	value, _ := f.byType.Load(w.described)
	last, failed := value.(watchFailure)
	if !failed || w.described == metadataType && !strings.Contains(last.err.Error(), w.kind) {
		return watchFailure{}
	}
	return last
}

// watched is a kind whose cache the controller needs.
type watched struct {
	kind, described string
	informer        cache.Informer
}

// resourceLister is what is needed of the discovery client.
type resourceLister interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// NeedLeaderElection makes it run without the lease.
func (*kruise) NeedLeaderElection() bool { return false }

// Start returns once the controller was added, or with an error when it can't be.
func (k *kruise) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, k.interval, true, func(ctx context.Context) (bool, error) {
		reason := k.look(ctx)
		if ctx.Err() == nil {
			k.tell(reason)
		}
		return reason == "", nil
	})
	if err != nil {
		return nil //nolint:nilerr // the manager stops, and that is all
	}
	return k.begin(ctx)
}

// look returns why there is nothing to work with, or nothing.
func (k *kruise) look(ctx context.Context) string {
	resources, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, kruisev1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return reasonAbsent
	case err != nil:
		return fmt.Sprintf("can't ask the API server for OpenKruise: %v", err)
	}
	if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "clonesets" }) {
		return reasonAbsent
	}
	return ""
}

// tell logs a reason once, until it changes.
func (k *kruise) tell(reason string) {
	before := k.absence.Swap(&reason)
	switch {
	case reason != "" && (before == nil || *before != reason):
		k.logger.Info("waiting for OpenKruise", "reason", reason)
	case reason == "" && before != nil:
		k.logger.Info("OpenKruise is installed")
	}
}

// begin starts the informers before the controller, which asks the cache for nothing else, and waits in setup for some.
func (k *kruise) begin(ctx context.Context) error {
	var all []watched
	for _, w := range []struct {
		kind   string
		object client.Object
	}{
		{"pods", &corev1.Pod{}}, {"CloneSets", &kruisev1alpha1.CloneSet{}},
		{"nodes", clusterstate.NodeMetadata()}, {"namespaces", clusterstate.NamespaceMetadata()},
	} {
		informer, err := k.informers.GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("starting the informer of %s: %w", w.kind, err)
		}
		all = append(all, watched{kind: w.kind, described: fmt.Sprintf("%T", w.object), informer: informer})
	}
	k.watched.Store(&all)
	if err := k.setup(ctx); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	k.ready.Store(true)
	return nil
}

// unready returns why the manager is not ready, or nothing.
func (k *kruise) unready() string {
	if reason := k.unfilled(); reason != "" {
		return reason
	}
	if refused := k.refused(); len(refused) > 0 {
		return reasonRefused + strings.Join(refused, "; ")
	}
	return ""
}

// unfilled returns why the caches are not filled and the controller does not run, or nothing. A refused watch does not
// count: its cache is filled by a new list with each try.
func (k *kruise) unfilled() string {
	if absence := k.absence.Load(); absence == nil {
		return reasonStarting
	} else if *absence != "" {
		return *absence
	}
	all := k.watched.Load()
	if all == nil {
		return reasonStarting
	}
	if missing := k.unsynced(*all); len(missing) > 0 {
		return reasonUnsynced + strings.Join(missing, "; ")
	}
	if !k.ready.Load() {
		return reasonStarting
	}
	return ""
}

// unsynced names each kind that has no cache yet, and why where that is known.
func (k *kruise) unsynced(all []watched) []string {
	var texts []string
	for _, w := range all {
		if w.informer.HasSynced() {
			continue
		}
		text := w.kind + " could not be listed so far"
		if failure := k.failures.of(w); failure != nil {
			text += ": " + failure.Error()
		}
		texts = append(texts, text)
	}
	return texts
}

// refused names each kind that the manager may not watch.
func (k *kruise) refused() []string {
	var texts []string
	for _, w := range *k.watched.Load() {
		if refusal := k.failures.refusal(w); refusal != nil {
			texts = append(texts, w.kind+": "+refusal.Error())
		}
	}
	return texts
}
