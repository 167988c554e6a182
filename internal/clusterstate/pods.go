package clusterstate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Pods reads cached pods. In the manager it is a [PodCache].
type Pods interface {
	// Get fails as a client does if there is none.
	Get(ctx context.Context, key types.NamespacedName) (*lifecycle.Pod, error)
	List(ctx context.Context, which Which) ([]*lifecycle.Pod, error)
	// Each is [Pods.List] without a copy of each pod: it calls do until that returns false. The next call overwrites the pod.
	Each(ctx context.Context, which Which, do func(*lifecycle.Pod) bool) error
}

// Which selects pods; the zero value all of them.
type Which struct {
	index, value string
	// selector is nil for any labels.
	selector labels.Selector
}

// Labelled selects those of the pods that have such labels.
func (w Which) Labelled(selector labels.Selector) Which {
	w.selector = selector
	return w
}

func (w Which) matches(p *packed) bool { return w.selector == nil || w.selector.Matches(&p.labels) }

// InNamespace selects the pods of a namespace.
func InNamespace(name string) Which { return Which{index: toolscache.NamespaceIndex, value: name} }

// OwnedBy selects the pods of a workload.
func OwnedBy(uid types.UID) Which { return Which{index: ownerIndex, value: string(uid)} }

// OnNode selects the pods on a node.
func OnNode(name string) Which { return Which{index: nodeIndex, value: name} }

// near selects the pods at an address, and some others.
func near(address string) Which { return Which{index: addressIndex, value: bucketOf(address)} }

const (
	ownerIndex   = "owner"
	addressIndex = "address"
	nodeIndex    = "node"
)

func (p *packed) indexed(index string) []string {
	switch index {
	case toolscache.NamespaceIndex:
		return []string{p.Namespace}
	case nodeIndex:
		return []string{p.node}
	case addressIndex:
		return p.buckets()
	case ownerIndex:
		if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
			return []string{string(owner.UID)}
		}
	}
	return nil
}

// PodCache is the manager's cache of pods: it has the informers of controller-runtime's cache keep and give what is read of them. A client
// of that cache has no pods to give. It keeps pods of namespaces outside the scope, so that a label takes them in without a list, and
// gives none of them to read.
type PodCache struct {
	sharer *Sharer
	scope  *Scope

	mu        sync.RWMutex
	informers []toolscache.SharedIndexInformer
}

// NewPodCache returns one without informers. A nil scope has all namespaces.
func NewPodCache(scope *Scope) *PodCache { return &PodCache{sharer: NewSharer(), scope: scope} }

// Strip is the cache.TransformFunc of pods.
func (c *PodCache) Strip(object any) (any, error) { return c.sharer.StripPod(object) }

// NewInformer makes the informers of all kinds. Those of pods need [PodCache.Strip].
func (c *PodCache) NewInformer(
	source toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	switch example.(type) {
	case *corev1.Pod:
	case *metav1.PartialObjectMetadata: // namespaces: all that is read as metadata
		informer := toolscache.NewSharedIndexInformer(source, example, resync, indexers)
		c.scope.Follow(informer.GetIndexer())
		return informer
	default:
		return toolscache.NewSharedIndexInformer(source, example, resync, indexers)
	}
	indexers = maps.Clone(indexers)
	for _, index := range []string{ownerIndex, addressIndex, nodeIndex} {
		indexers[index] = func(object any) ([]string, error) {
			p, is := object.(*packed)
			if !is {
				return nil, fmt.Errorf("indexing pods: the cache has %T", object)
			}
			return p.indexed(index), nil
		}
	}
	informer := toolscache.NewSharedIndexInformer(source, example, resync, indexers)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.informers = append(c.informers, informer)
	return unpacking{informer}
}

// filled returns the informers once they have listed all pods.
func (c *PodCache) filled(ctx context.Context) ([]toolscache.SharedIndexInformer, error) {
	c.mu.RLock()
	informers := c.informers
	c.mu.RUnlock()
	if len(informers) == 0 {
		return nil, errors.New("reading pods from the cache: it does not watch them yet")
	}
	for _, informer := range informers {
		if !informer.HasSynced() && !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil, fmt.Errorf("waiting for the cache to list the pods: %w", context.Cause(ctx))
		}
	}
	return informers, nil
}

// Get implements [Pods].
func (c *PodCache) Get(ctx context.Context, key types.NamespacedName) (*lifecycle.Pod, error) {
	informers, err := c.filled(ctx)
	if err != nil {
		return nil, err
	}
	if c.scope.Excludes(key.Namespace) {
		informers = nil
	}
	for _, informer := range informers {
		object, exists, err := informer.GetIndexer().GetByKey(key.String())
		if p, is := object.(*packed); err == nil && exists && is {
			return p.unpack(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading pod %s from the cache: %w", key, err)
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

// List implements [Pods].
func (c *PodCache) List(ctx context.Context, which Which) (pods []*lifecycle.Pod, err error) {
	err = c.each(ctx, which, func(p *packed) bool {
		pods = append(pods, p.unpack())
		return true
	})
	return pods, err
}

// Each implements [Pods].
func (c *PodCache) Each(ctx context.Context, which Which, do func(*lifecycle.Pod) bool) error {
	var pod lifecycle.Pod
	return c.each(ctx, which, func(p *packed) bool {
		p.unpackInto(&pod)
		return do(&pod)
	})
}

func (c *PodCache) each(ctx context.Context, which Which, do func(*packed) bool) error {
	informers, err := c.filled(ctx)
	if err != nil {
		return err
	}
	outside := func(p *packed) bool { return c.scope.ByLabel() && !c.scope.Watches(p.Namespace) }
	for _, informer := range informers {
		objects, err := which.of(informer.GetIndexer())
		if err != nil {
			return fmt.Errorf("listing pods in the cache: %w", err)
		}
		for _, object := range objects {
			if p, is := object.(*packed); is && which.matches(p) && !outside(p) && !do(p) {
				return nil
			}
		}
	}
	return nil
}

func (w Which) of(pods toolscache.Indexer) ([]any, error) {
	if w.index == "" {
		return pods.List(), nil
	}
	return pods.ByIndex(w.index, w.value)
}
