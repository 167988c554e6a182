package app

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
)

// refusalHolds is how long a refused watch counts. A reflector backs off for 30 to 60 s at most before it tries again.
const refusalHolds = 2 * time.Minute

const (
	reasonStarting = "starting"
	reasonAbsent   = "OpenKruise is not installed: no CRD clonesets.apps.kruise.io; " +
		"install OpenKruise (https://openkruise.io/docs/installation), and the manager continues by itself within a minute"
	reasonUnsynced = "the caches are not synced yet: "
	reasonRefused  = "the API server refuses a watch, so what this manager knows is out of date: "
)

// cloneSets is how the reasons name them.
const cloneSets = clusterstate.KindCloneSet + "s"

// kruise fills the caches and then starts the controller, on every manager: one that waits for the lease has its caches
// filled when it gets it. Until OpenKruise is installed, the list of CloneSets fails and is tried again.
type kruise struct {
	informers cache.Informers
	// withoutNodes: they can't be watched.
	withoutNodes bool
	// setup adds the controller to the manager.
	setup    func(context.Context) error
	failures *watchFailures

	// added is set once setup has returned.
	added   atomic.Bool
	watched atomic.Pointer[[]watched]
}

// watchFailures holds the last failure of each reflector, by the type that it names.
type watchFailures struct{ byType sync.Map }

type watchFailure struct {
	err error
	at  time.Time
}

// failed is a toolscache.WatchErrorHandlerWithContext.
func (f *watchFailures) failed(ctx context.Context, r *toolscache.Reflector, err error) {
	f.note(r.TypeDescription(), err)
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}

func (f *watchFailures) note(described string, err error) {
	f.byType.Store(described, watchFailure{err: err, at: time.Now()})
}

// of returns the kind's last failure, or the zero value if none is known.
func (f *watchFailures) of(w watched) watchFailure {
	value, _ := f.byType.Load(w.described())
	last, _ := value.(watchFailure)
	return last
}

// ofEndpointSlices returns the last failure, unless it was before since or has ended.
func (f *watchFailures) ofEndpointSlices(since time.Time) error {
	last := f.of(watched{object: &discoveryv1.EndpointSlice{}})
	if last.at.Before(since) || time.Since(last.at) > refusalHolds {
		return nil
	}
	return last.err
}

// watched is a kind whose cache the controller needs.
type watched struct {
	kind     string
	object   client.Object
	informer cache.Informer
}

// described is the reflector's name for the kind.
func (w watched) described() string { return fmt.Sprintf("%T", w.object) }

// NeedLeaderElection makes it run without the lease.
func (*kruise) NeedLeaderElection() bool { return false }

// Start returns once the controller was added, or with an error when it can't be. The controller asks the cache for nothing
// else, and would give up if one of these can't be listed.
func (k *kruise) Start(ctx context.Context) error {
	all := []watched{{kind: "pods", object: &corev1.Pod{}}}
	for _, workload := range clusterstate.Kinds() {
		all = append(all, watched{kind: workload + "s", object: clusterstate.NewObject(workload)})
	}
	if !k.withoutNodes {
		all = append(all, watched{kind: "nodes", object: &corev1.Node{}})
	}
	all = append(all, watched{kind: "namespaces", object: clusterstate.NamespaceMetadata()})
	var filled []toolscache.InformerSynced
	for i := range all {
		informer, err := k.informers.GetInformer(ctx, all[i].object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("starting the informer of %s: %w", all[i].kind, err)
		}
		all[i].informer = informer
		filled = append(filled, informer.HasSynced)
	}
	k.watched.Store(&all)
	if !toolscache.WaitForCacheSync(ctx.Done(), filled...) {
		return nil // the manager stops, and that is all
	}
	if err := k.setup(ctx); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	k.added.Store(true)
	return nil
}

// unready returns why the manager is not ready, or nothing.
func (k *kruise) unready() string {
	return cmp.Or(k.unfilled(), k.wrong(reasonRefused, func(w watched) string {
		// A reflector does not report a success, but it repeats a request that fails: a refusal that is not repeated has ended.
		if last := k.failures.of(w); apierrors.IsForbidden(last.err) && time.Since(last.at) <= refusalHolds {
			return ": " + last.err.Error()
		}
		return ""
	}))
}

// synced reports whether the caches are filled and the controller runs.
func (k *kruise) synced() bool { return k.unfilled() == "" }

// unfilled returns why the caches are not filled and the controller does not run, or nothing. A refused watch does not
// count: its cache is filled by a new list with each try.
func (k *kruise) unfilled() string {
	unsynced := k.wrong(reasonUnsynced, func(w watched) string {
		if w.informer.HasSynced() {
			return ""
		}
		switch failure := k.failures.of(w).err; {
		case w.kind == cloneSets && apierrors.IsNotFound(failure):
			return ": " + reasonAbsent
		case failure != nil:
			return " could not be listed so far: " + failure.Error()
		default:
			return " could not be listed so far"
		}
	})
	if unsynced == "" && !k.added.Load() {
		return reasonStarting
	}
	return unsynced
}

// failing returns why caches can't be filled, or nothing while they may still be on their way.
func (k *kruise) failing() string {
	return k.wrong(reasonUnsynced, func(w watched) string {
		if err := k.failures.of(w).err; err != nil && !w.informer.HasSynced() {
			return ": " + err.Error()
		}
		return ""
	})
}

// wrong lists each kind for which the function returns something.
func (k *kruise) wrong(prefix string, of func(watched) string) string {
	var texts []string
	if all := k.watched.Load(); all != nil {
		for _, w := range *all {
			if text := of(w); text != "" {
				texts = append(texts, w.kind+text)
			}
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return prefix + strings.Join(texts, "; ")
}
