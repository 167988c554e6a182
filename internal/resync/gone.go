package resync

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// fewPods is for how many pods of a namespace the API server is asked one by one. For more it is asked for all.
	fewPods = 10
	// podPage is how many pods it is asked for at once.
	podPage = 1000
)

// Cluster is the [Pods] of a manager.
type Cluster struct {
	// Cache reads pods from the cache, and API from the API server.
	Cache, API client.Reader
	// Synced reports whether the cache is filled.
	Synced  func() bool
	Tracker *tracker.Tracker
	Claims  *clusterstate.Claims
	Clock   clock.PassiveClock
}

// Compare implements [Pods].
func (c *Cluster) Compare(ctx context.Context, l tracker.Listing) (tracker.Comparison, error) {
	result := c.Tracker.Compare(l)
	vanished, err := c.vanished(ctx, result.Unknown)
	if err != nil {
		return tracker.Comparison{}, err
	}
	standing := make([]clusterstate.Entry, 0, len(result.Standing))
	for _, t := range result.Standing {
		if pod := podOf(t.Instance); !vanished[pod.UID] {
			standing = append(standing, clusterstate.Entry{Recorded: t.Key(), Pod: pod})
		}
	}
	c.Claims.Listed(l.Registry, standing, l.Asked.Add(-l.Staleness), c.Clock.Now())
	return result, nil
}

// vanished returns the pods of the entries that the cache has not, once it is filled: what they left gives no namespace a
// right to a name.
func (c *Cluster) vanished(ctx context.Context, unknown []registry.Entry) (map[types.UID]bool, error) {
	if len(unknown) == 0 || !c.Synced() {
		return nil, nil
	}
	cached, err := c.cached(ctx)
	if err != nil {
		return nil, err
	}
	vanished := map[types.UID]bool{}
	for _, e := range unknown {
		if _, found := cached[types.UID(e.UID)]; !found {
			vanished[types.UID(e.UID)] = true
		}
	}
	return vanished, nil
}

func podOf(in registry.Instance) lifecycle.PodID {
	return lifecycle.PodID{
		NamespacedName: types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, UID: types.UID(in.UID),
	}
}

// Gone implements [Pods]. A cache that lags, or that leaves out pods without the lifecycle label, is believed only of the
// pods that it has. A pod with another UID is another pod, and one that lives keeps every entry with its UID, whatever pod
// that names: removing it could take the pod's own. A pod that is found is looked at by the reconciler where that may have
// missed it. It is all or nothing.
func (c *Cluster) Gone(ctx context.Context, entries []registry.Entry) ([]registry.Entry, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	cached, err := c.cached(ctx)
	if err != nil {
		return nil, err
	}
	live := map[types.UID]bool{}
	suspects := map[string]map[lifecycle.PodID]bool{}
	for _, e := range entries {
		id := podOf(e.Instance)
		if name, found := cached[id.UID]; found {
			live[id.UID] = true
			c.Tracker.Doubt(lifecycle.PodID{NamespacedName: name, UID: id.UID})
			continue
		}
		if suspects[id.Namespace] == nil {
			suspects[id.Namespace] = map[lifecycle.PodID]bool{}
		}
		suspects[id.Namespace][id] = true
	}
	for namespace, ids := range suspects {
		if err := c.liveIn(ctx, namespace, ids, live); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e registry.Entry) bool { return live[types.UID(e.UID)] }), nil
}

// cached returns the names of all pods in the cache.
func (c *Cluster) cached(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
	var pods corev1.PodList
	if err := c.Cache.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods in the cache: %w", err)
	}
	names := make(map[types.UID]types.NamespacedName, len(pods.Items))
	for i := range pods.Items {
		names[pods.Items[i].UID] = client.ObjectKeyFromObject(&pods.Items[i])
	}
	return names, nil
}

// liveIn adds those of the pods of one namespace that live.
func (c *Cluster) liveIn(
	ctx context.Context, namespace string, ids map[lifecycle.PodID]bool, live map[types.UID]bool,
) error {
	if len(ids) > fewPods {
		present, err := c.podsIn(ctx, namespace)
		if err != nil {
			return err
		}
		found := map[lifecycle.PodID]bool{}
		for id := range ids {
			if name, there := present[id.UID]; there {
				found[lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: id.UID}] = true
			}
		}
		ids = found
	}
	for id := range ids {
		lives, err := c.lives(ctx, id)
		if err != nil {
			return err
		}
		live[id.UID] = live[id.UID] || lives
	}
	return nil
}

// podsIn returns the names of all pods in a namespace, asked of the API server.
func (c *Cluster) podsIn(ctx context.Context, namespace string) (map[types.UID]string, error) {
	present := map[types.UID]string{}
	for next := ""; ; {
		var page metav1.PartialObjectMetadataList
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := c.API.List(ctx, &page, client.InNamespace(namespace), client.Limit(podPage), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
		}
		for i := range page.Items {
			present[page.Items[i].UID] = page.Items[i].Name
		}
		if next = page.Continue; next == "" {
			return present, nil
		}
	}
}

// lives asks the API server for one pod. A dying one is the reconciler's: it may have to be freed as well. One that has
// ended for good does not come back, and leaves its address to others.
func (c *Cluster) lives(ctx context.Context, id lifecycle.PodID) (bool, error) {
	pod, err := clusterstate.Live(ctx, c.API, id)
	switch {
	case err != nil:
		return false, err
	case pod == nil:
		return false, nil
	case pod.DeletionTimestamp != nil:
		c.Tracker.Dying(pod)
		c.Tracker.Doubt(id)
		return true, nil
	default:
		return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed, nil
	}
}
