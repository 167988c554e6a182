package resync

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/place"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const podPage = 1000

// Cluster implements [Pods] for a manager.
type Cluster struct {
	*tracker.Tracker

	Cache, API client.Reader
	Pods       clusterstate.Pods
	Synced     func() bool
	Claims     *clusterstate.Claims
	Clock      clock.PassiveClock
}

// Compare implements [Pods]. Only entries that were once in rotation, of pods in the cache, support a claim to a name.
func (c *Cluster) Compare(ctx context.Context, l tracker.Listing) (tracker.Comparison, error) {
	result := c.Tracker.Compare(l)
	gone := map[types.UID]bool{}
	if c.Synced() {
		var err error
		if result.Unknown, err = c.uncached(ctx, result.Unknown); err != nil {
			return tracker.Comparison{}, err
		}
		for _, e := range result.Unknown {
			gone[types.UID(e.UID)] = true
		}
	}
	standing := make([]clusterstate.Entry, 0, len(result.Standing))
	for _, e := range result.Standing {
		t := tracker.Target{Registry: l.Registry, Instance: e.Instance}
		pod := t.Pod()
		if gone[pod.UID] {
			continue
		}
		was, err := c.wasInService(ctx, e, pod)
		if err != nil {
			return tracker.Comparison{}, err
		}
		if was {
			standing = append(standing, clusterstate.Entry{Key: t.Key(), Pod: pod})
		}
	}
	c.Claims.Listed(clusterstate.List{
		Registry: l.Registry, Coverage: l.Coverage, Entries: standing, AsOf: l.Asked.Add(-l.Staleness),
	}, c.Clock.Now())
	return result, nil
}

// Places implements [Pods].
func (c *Cluster) Places(ctx context.Context, name, template string) (map[string]map[string]bool, error) {
	places, err := clusterstate.PlacesOf(ctx, c.Cache, c.Pods, template)
	if err != nil {
		return nil, err
	}
	for namespace, services := range c.Whereabouts(name) {
		for service := range services {
			at, _ := place.Split(template, string(service))
			if at == "" { // of another template
				continue
			}
			if places[namespace] == nil {
				places[namespace] = map[string]bool{}
			}
			places[namespace][at] = true
		}
	}
	return places, nil
}

// wasInService reports whether clients were ever given the entry: some registries create one for a pod that stays out. Without the
// pod's record to tell, it assumes so.
func (c *Cluster) wasInService(ctx context.Context, e registry.Entry, id lifecycle.PodID) (bool, error) {
	if e.State == registry.InService || !c.Synced() {
		return true, nil
	}
	pod, err := c.Pods.Get(ctx, id.NamespacedName)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading the pod of an entry: %w", err)
	}
	record := lifecycle.RecordOf(pod)
	return pod.UID != id.UID || record.WasInService() || !record.Exists(), nil
}

// uncached returns the entries whose UID no cached pod has. An entry with a cached pod's UID but another name is kept too: removing it
// could remove the pod's own. The reconciler checks these pods.
func (c *Cluster) uncached(ctx context.Context, entries []registry.Entry) ([]registry.Entry, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	pods, err := c.Pods.List(ctx, clusterstate.Which{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods in the cache: %w", err)
	}
	names := make(map[types.UID]types.NamespacedName, len(pods))
	for _, pod := range pods {
		names[pod.UID] = client.ObjectKeyFromObject(pod)
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e registry.Entry) bool {
		uid := types.UID(e.UID)
		name, found := names[uid]
		if found {
			c.Doubt(lifecycle.PodID{NamespacedName: name, UID: uid})
		}
		return found
	}), nil
}

// Gone implements [Pods]. The cache may lag and lacks pods without the lifecycle label. An error fails the whole call.
func (c *Cluster) Gone(ctx context.Context, unknown []registry.Entry) ([]registry.Entry, error) {
	live, present := map[types.UID]bool{}, map[string]map[types.UID]string{}
	for _, e := range unknown {
		if _, asked := present[e.Namespace]; !asked {
			names, err := c.podsIn(ctx, e.Namespace)
			if err != nil {
				return nil, err
			}
			present[e.Namespace] = names
		}
		uid := types.UID(e.UID)
		name, there := present[e.Namespace][uid]
		if _, asked := live[uid]; asked || !there {
			continue
		}
		lives, err := c.lives(ctx, lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: e.Namespace, Name: name}, UID: uid})
		if err != nil {
			return nil, err
		}
		live[uid] = lives
	}
	return slices.DeleteFunc(slices.Clone(unknown), func(e registry.Entry) bool { return live[types.UID(e.UID)] }), nil
}

// podsIn bypasses the cache.
func (c *Cluster) podsIn(ctx context.Context, namespace string) (map[types.UID]string, error) {
	present := map[types.UID]string{}
	for next := ""; ; {
		var page metav1.PartialObjectMetadataList
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := c.API.List(ctx, &page, client.InNamespace(namespace), client.Limit(podPage), client.Continue(next))
		if apierrors.IsForbidden(err) && clusterstate.Lacks(ctx, c.API, namespace) {
			return present, nil
		}
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

// lives is true for a terminating pod, whose hooks may need a release, and false for a finished one: others can get its address.
func (c *Cluster) lives(ctx context.Context, id lifecycle.PodID) (bool, error) {
	pod, err := clusterstate.Live(ctx, c.API, id)
	switch {
	case pod == nil: // it is gone, or could not be read
		return false, err
	case pod.DeletionTimestamp != nil:
		c.Dying(pod)
		c.Doubt(id)
		return true, nil
	default:
		return !lifecycle.Finished(pod), nil
	}
}
