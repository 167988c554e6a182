package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
)

// reach is what of the whole cluster the manager may watch. Roles in the namespaces of the configuration grant neither.
type reach struct {
	nodes, namespaces bool
}

// beyond reports whether the reach has something that the other lacks.
func (r reach) beyond(other reach) bool {
	return r.nodes && !other.nodes || r.namespaces && !other.namespaces
}

// reachOf asks the API server. A manager of the whole cluster needs both, and reports what it lacks.
func reachOf(ctx context.Context, server client.Client, listed []string) (r reach, err error) {
	if len(listed) == 0 {
		return reach{nodes: true, namespaces: true}, nil
	}
	var nodesErr, namespacesErr error
	r.nodes, nodesErr = watchable(ctx, server, "nodes")
	r.namespaces, namespacesErr = watchable(ctx, server, "namespaces")
	return r, errors.Join(nodesErr, namespacesErr)
}

func watchable(ctx context.Context, server client.Client, resource string) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		if may, err := allowed(ctx, server, authorizationv1.ResourceAttributes{Verb: verb, Resource: resource}); err != nil || !may {
			return false, err
		}
	}
	return true, nil
}

// namespaceGets is a list and a watch of namespaces by their names. A Role with get on namespaces allows to get the namespace that it is
// in.
type namespaceGets struct {
	server   client.Reader
	names    []string
	interval time.Duration
}

var _ toolscache.ListerWatcherWithContext = &namespaceGets{}

// List implements toolscache.Lister.
func (g *namespaceGets) List(options metav1.ListOptions) (runtime.Object, error) {
	return g.ListWithContext(context.Background(), options)
}

// ListWithContext gets each namespace that exists. If one can't be read, it returns none, and the cache keeps what it has: the rights may
// be gone with the namespace, or alone.
func (g *namespaceGets) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	list := &metav1.PartialObjectMetadataList{}
	for _, name := range g.names {
		namespace := clusterstate.NamespaceMetadata()
		err := g.server.Get(ctx, client.ObjectKey{Name: name}, namespace)
		switch {
		case err == nil:
			list.Items = append(list.Items, *namespace)
		case apierrors.IsNotFound(err):
		default:
			return nil, fmt.Errorf("getting namespace %s: %w", name, err)
		}
	}
	return list, nil
}

// Watch implements toolscache.Watcher.
func (g *namespaceGets) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return g.WatchWithContext(context.Background(), options)
}

// WatchWithContext ends after a while as a watch does that is too old, so that the reflector lists again.
func (g *namespaceGets) WatchWithContext(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	wait := time.NewTimer(g.interval)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-wait.C:
		return nil, apierrors.NewResourceExpired("namespaces are listed again")
	}
}

// IsWatchListSemanticsUnSupported makes the reflector list.
func (*namespaceGets) IsWatchListSemanticsUnSupported() bool { return true }

// informers are those of the pods' cache. Namespaces come from this source, if there is one.
func informers(pods *clusterstate.PodCache, namespaces toolscache.ListerWatcher) newInformer {
	if namespaces == nil {
		return pods.NewInformer
	}
	return func(
		source toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		if _, is := example.(*metav1.PartialObjectMetadata); is { // all that is read as metadata
			source = namespaces
		}
		return pods.NewInformer(source, example, resync, indexers)
	}
}

type newInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
