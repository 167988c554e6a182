package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

type queue = workqueue.TypedRateLimitingInterface[lifecycle.PodID]

const (
	// rolloutPriority puts what a rollout waits for before everything else.
	rolloutPriority = 100
	// wokenPriority puts a pod for which a slot is free before those that would have to wait for one.
	wokenPriority = 50
	// wokenRecheck is for a pod that waits for a slot and is not woken, which would be an error of Rollcall's.
	wokenRecheck = time.Minute
)

// enqueue adds a pod that OpenKruise waits for in front, and any other at the priority that the event has.
func enqueue(q queue, pod *corev1.Pod) {
	if rolloutWaits(pod) {
		enqueueAt(q, rolloutPriority, lifecycle.PodIDOf(pod))
		return
	}
	q.Add(lifecycle.PodIDOf(pod))
}

func enqueueAt(q queue, priority int, id lifecycle.PodID) {
	priorities, ok := q.(priorityqueue.PriorityQueue[lifecycle.PodID])
	if !ok {
		q.Add(id)
		return
	}
	priorities.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, id)
}

func rolloutWaits(pod *corev1.Pod) bool {
	switch appspub.LifecycleStateType(pod.Labels[appspub.LifecycleStateKey]) {
	case appspub.LifecycleStatePreparingDelete, appspub.LifecycleStatePreparingUpdate:
		return true
	default:
		return pod.DeletionTimestamp != nil
	}
}

// podEvents looks at the pods that something happens to.
func (r *PodReconciler) podEvents() handler.TypedEventHandler[*corev1.Pod, lifecycle.PodID] {
	departed := func(pod *corev1.Pod, q queue) {
		r.Tracker.Departed(pod)
		r.State.Panics.Departed(pod, &r.settings.Load().Rules)
		enqueue(q, pod)
	}
	return handler.TypedFuncs[*corev1.Pod, lifecycle.PodID]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) {
			r.Tracker.Arrived(lifecycle.PodIDOf(e.Object), !e.IsInInitialList)
			r.State.Panics.Arrived(e.Object, &r.settings.Load().Rules)
			enqueue(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) {
			// A watch that was broken for a while shows a deletion and a creation under one name as an update.
			if e.ObjectOld.UID != e.ObjectNew.UID {
				departed(e.ObjectOld, q)
			}
			r.State.Panics.Arrived(e.ObjectNew, &r.settings.Load().Rules)
			enqueue(q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) { departed(e.Object, q) },
	}
}

// workloadEvents looks again at the pods of a workload whose spec changed, or that is gone.
func (r *PodReconciler) workloadEvents() handler.TypedEventHandler[*kruisev1alpha1.CloneSet, lifecycle.PodID] {
	enqueuePods := func(ctx context.Context, workload *kruisev1alpha1.CloneSet, q queue) {
		r.enqueueFound(ctx, q, client.InNamespace(workload.Namespace), client.MatchingFields{ownerIndex: string(workload.UID)})
	}
	return handler.TypedFuncs[*kruisev1alpha1.CloneSet, lifecycle.PodID]{
		CreateFunc: func(context.Context, event.TypedCreateEvent[*kruisev1alpha1.CloneSet], queue) {
			r.State.Workloads.Changed()
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*kruisev1alpha1.CloneSet], q queue) {
			if e.ObjectOld.UID == e.ObjectNew.UID && e.ObjectOld.Generation == e.ObjectNew.Generation {
				return
			}
			r.State.Workloads.Changed()
			enqueuePods(ctx, e.ObjectNew, q)
			if e.ObjectOld.UID != e.ObjectNew.UID {
				enqueuePods(ctx, e.ObjectOld, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*kruisev1alpha1.CloneSet], q queue) {
			r.State.Workloads.Changed()
			enqueuePods(ctx, e.Object, q)
		},
	}
}

// namespaceEvents looks again at the pods of a namespace that came, or whose labels changed. The cache refuses to be asked
// for the pods of a namespace that it does not watch.
func (r *PodReconciler) namespaceEvents() handler.TypedEventHandler[*metav1.PartialObjectMetadata, lifecycle.PodID] {
	enqueuePods := func(ctx context.Context, namespace string, q queue) {
		if len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, namespace) {
			r.enqueueFound(ctx, q, client.InNamespace(namespace))
		}
	}
	return handler.TypedFuncs[*metav1.PartialObjectMetadata, lifecycle.PodID]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*metav1.PartialObjectMetadata], q queue) {
			r.State.Workloads.Changed()
			if !e.IsInInitialList { // then the pods come by themselves
				enqueuePods(ctx, e.Object.Name, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*metav1.PartialObjectMetadata], q queue) {
			if e.ObjectOld.UID == e.ObjectNew.UID && maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) {
				return
			}
			r.State.Workloads.Changed()
			enqueuePods(ctx, e.ObjectNew.Name, q)
		},
		DeleteFunc: func(context.Context, event.TypedDeleteEvent[*metav1.PartialObjectMetadata], queue) {
			r.State.Workloads.Changed()
		},
	}
}

// ownerIndex finds the pods of a workload by its UID.
const ownerIndex = "controller-uid"

func ownerUID(obj client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// enqueueFound adds the pods of the cache that the options choose.
func (r *PodReconciler) enqueueFound(ctx context.Context, q queue, which ...client.ListOption) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing the pods to look at after a change")
		return
	}
	for i := range pods.Items {
		enqueue(q, &pods.Items[i])
	}
}

// enqueueAll looks again at every pod, and at what departed pods left: the settings have changed.
func (r *PodReconciler) enqueueAll(ctx context.Context, q queue) {
	r.enqueueFound(ctx, q)
	for _, pod := range r.Tracker.Departures() {
		enqueue(q, pod)
	}
}

// enqueueDoubted puts back what a registry has lost before it looks at what differs, which goes behind all others.
func (r *PodReconciler) enqueueDoubted(_ context.Context, q queue) {
	lost, doubtful := r.Tracker.TakeDoubted()
	for _, id := range lost {
		q.Add(id)
	}
	for _, id := range doubtful {
		enqueueAt(q, handler.LowPriority, id)
	}
}

// enqueueCalmed looks again at the pods that a panic kept, once it has passed.
func (r *PodReconciler) enqueueCalmed(_ context.Context, q queue) {
	for _, id := range r.State.Panics.TakeCalmed() {
		q.Add(id)
	}
}

// enqueueWoken looks again at the pods for whose calls a slot is free.
func (r *PodReconciler) enqueueWoken(_ context.Context, q queue) {
	for id, urgent := range r.woken.take() {
		priority := wokenPriority
		if urgent {
			priority += rolloutPriority
		}
		enqueueAt(q, priority, id)
	}
}

// wakeups are the pods that were woken, on their way to the queue, and whether a rollout waits for them.
type wakeups struct {
	mu     sync.Mutex
	pods   map[lifecycle.PodID]bool
	signal chan struct{}
}

func newWakeups() *wakeups {
	return &wakeups{pods: map[lifecycle.PodID]bool{}, signal: make(chan struct{}, 1)}
}

func (w *wakeups) add(id lifecycle.PodID, urgent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[id] = urgent
	select {
	case w.signal <- struct{}{}:
	default: // a signal is waiting already
	}
}

func (w *wakeups) take() map[lifecycle.PodID]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	woken := w.pods
	w.pods = map[lifecycle.PodID]bool{}
	return woken
}

// signalled is a source that calls do for each signal.
type signalled struct {
	signal <-chan struct{}
	do     func(context.Context, queue)
}

func (s signalled) Start(ctx context.Context, q queue) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.signal:
				s.do(ctx, q)
			}
		}
	}()
	return nil
}

// awaited holds the workers back until its channel is closed. It is a source without events.
type awaited struct{ done <-chan struct{} }

func (awaited) Start(context.Context, queue) error { return nil }

func (a awaited) WaitForSync(ctx context.Context) error {
	if a.done == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
