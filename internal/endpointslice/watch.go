package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

const uidIndex = "endpoints.uid"

// Cluster is what the manager lends the driver.
type Cluster struct {
	// Cache and Pod read EndpointSlices and a pod from the cache, which Informers fill.
	Cache     client.Reader
	Pod       func(context.Context, types.NamespacedName) (*lifecycle.Pod, error)
	Informers cache.Informers
	// Failure returns why the EndpointSlices could not be watched, if that was after a time and may still be so.
	Failure func(since time.Time) error
	// Wake has a pod reconciled, and Again all of them.
	Wake  func(lifecycle.PodID)
	Again func()
}

// Watch reads EndpointSlices once the configuration has a registry of this driver. It is a manager.Runnable.
type Watch struct {
	Cluster

	wanted chan struct{}
	once   sync.Once
	// synced is since when; nil if they were not listed yet.
	synced atomic.Pointer[time.Time]
	// shown has when a pod's condition was first seen as it is, a [sight] by UID, while something is missing.
	shown *lru.Cache
}

type sight struct {
	status corev1.ConditionStatus
	since  int64
	at     time.Time
}

// mostShown is more pods than go in and out at the same time. For a forgotten pod, the time begins again.
const mostShown = 100_000

// NewWatch returns a Watch that is to get its Cluster before it is started.
func NewWatch() *Watch { return &Watch{wanted: make(chan struct{}), shown: lru.New(mostShown)} }

// Wanted reports whether the configuration has had a registry of this driver.
func (w *Watch) Wanted() bool {
	select {
	case <-w.wanted:
		return true
	default:
		return false
	}
}

func (w *Watch) want() { w.once.Do(func() { close(w.wanted) }) }

// NeedLeaderElection makes it run without the lease, as all caches.
func (*Watch) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (w *Watch) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.wanted:
	}
	slice := &discoveryv1.EndpointSlice{}
	informer, err := w.Informers.GetInformer(ctx, slice, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("starting the informer of EndpointSlices: %w", err)
	}
	if err = w.Informers.IndexField(ctx, slice, uidIndex, uidsOf); err != nil {
		return fmt.Errorf("indexing EndpointSlices: %w", err)
	}
	handled, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(now any, first bool) {
			if !first { // all pods are reconciled below
				w.changed(ctx, nil, now)
			}
		},
		UpdateFunc: func(old, now any) { w.changed(ctx, old, now) },
		DeleteFunc: func(old any) { w.changed(ctx, old, nil) },
	})
	if err != nil {
		return fmt.Errorf("following EndpointSlices: %w", err)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		w.synced.Store(new(time.Now()))
		w.Again()
	}
	return nil
}

// look returns what the caches have of a pod.
func (w *Watch) look(ctx context.Context, in registry.Instance) (view, error) {
	v := view{uid: in.UID, now: time.Now()}
	if err := w.current(); err != nil {
		return v, err
	}
	pod, err := w.Pod(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod})
	if client.IgnoreNotFound(err) != nil {
		return v, err
	}
	if err == nil && string(pod.UID) == in.UID {
		v.pod, v.shownFor = pod, w.shownFor(in.UID, conditionOf(pod, lifecycle.ConditionInRotation), v.now)
	}
	var list discoveryv1.EndpointSliceList
	err = w.Cache.List(ctx, &list, client.InNamespace(in.Namespace), client.MatchingFields{uidIndex: in.UID}, client.UnsafeDisableDeepCopy)
	for i := range list.Items {
		v.slices = append(v.slices, &list.Items[i])
	}
	return v, err
}

// shownFor returns how long this process has seen the pod's condition as it is.
func (w *Watch) shownFor(uid string, condition lifecycle.PodCondition, now time.Time) time.Duration {
	seen, _ := w.shown.Get(uid)
	first, is := seen.(sight)
	if is && first.status == condition.Status && first.since == condition.LastTransitionTime.Unix() {
		return now.Sub(first.at)
	}
	w.shown.Add(uid, sight{condition.Status, condition.LastTransitionTime.Unix(), now})
	return 0
}

// current returns an error while the cache may lag far behind.
func (w *Watch) current() error {
	const rights = ": apply config/components/endpointslice, which the chart brings with the driver"
	since, synced := time.Time{}, w.synced.Load()
	if synced != nil {
		since = *synced
	}
	switch err := w.Failure(since); {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("watching EndpointSlices: %w%s", err, rights)
	case synced != nil:
		return nil
	case err != nil:
		return fmt.Errorf("listing EndpointSlices: %w", err)
	}
	return errors.New("the EndpointSlices have not been listed yet")
}

// changed wakes the pods whose endpoints differ.
func (w *Watch) changed(ctx context.Context, old, now any) {
	before, after := endpointsOf(old), endpointsOf(now)
	for pod, is := range after {
		if was, had := before[pod]; !had || was != is {
			w.wake(ctx, pod)
		}
		delete(before, pod)
	}
	for pod := range before {
		w.wake(ctx, pod)
	}
}

// wake leaves out what is not a pod of the cache: whoever writes an EndpointSlice chooses the names and UIDs in it. What waits for a pod
// that is gone tries again by itself.
func (w *Watch) wake(ctx context.Context, id lifecycle.PodID) {
	if pod, err := w.Pod(ctx, id.NamespacedName); err == nil && pod.UID == id.UID {
		w.Wake(id)
	}
}

type state struct{ ready, given bool }

func endpointsOf(object any) map[lifecycle.PodID]state {
	if gone, is := object.(toolscache.DeletedFinalStateUnknown); is {
		object = gone.Obj
	}
	slice, is := object.(*discoveryv1.EndpointSlice)
	if !is {
		return nil
	}
	pods := make(map[lifecycle.PodID]state, len(slice.Endpoints))
	for _, e := range slice.Endpoints {
		if uidOf(e) != "" {
			name := types.NamespacedName{Namespace: slice.Namespace, Name: e.TargetRef.Name}
			pods[lifecycle.PodID{NamespacedName: name, UID: e.TargetRef.UID}] = state{isReady(e.Conditions), isGiven(e.Conditions)}
		}
	}
	return pods
}

func uidsOf(object client.Object) (uids []string) {
	for pod := range endpointsOf(object) {
		uids = append(uids, string(pod.UID))
	}
	return uids
}

// Strip is a cache.TransformFunc that keeps what the driver reads.
func Strip(object any) (any, error) {
	slice, is := object.(*discoveryv1.EndpointSlice)
	if !is {
		return object, nil
	}
	kept := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: slice.Namespace, Name: slice.Name, UID: slice.UID, ResourceVersion: slice.ResourceVersion,
		Labels: map[string]string{discoveryv1.LabelServiceName: slice.Labels[discoveryv1.LabelServiceName]},
	}}
	for _, e := range slice.Endpoints {
		if uidOf(e) != "" {
			kept.Endpoints = append(kept.Endpoints, discoveryv1.Endpoint{Conditions: e.Conditions, TargetRef: &corev1.ObjectReference{
				Kind: e.TargetRef.Kind, Name: e.TargetRef.Name, UID: e.TargetRef.UID,
			}})
		}
	}
	return kept, nil
}
