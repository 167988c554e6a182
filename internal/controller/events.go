package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
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
	if lifecycle.RolloutWaits(pod) {
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

// onEvents calls do with each change of an object: old is nil of one that came, which the informer's first list may have had,
// and now is nil of one that is gone.
func onEvents[T client.Object](
	do func(ctx context.Context, old, now T, first bool, q queue),
) handler.TypedEventHandler[T, lifecycle.PodID] {
	var none T
	return handler.TypedFuncs[T, lifecycle.PodID]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q queue) {
			do(ctx, none, e.Object, e.IsInInitialList, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q queue) {
			do(ctx, e.ObjectOld, e.ObjectNew, false, q)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q queue) { do(ctx, e.Object, none, false, q) },
	}
}

// podEvents looks at the pods that something happens to.
func (r *PodReconciler) podEvents() handler.TypedEventHandler[*corev1.Pod, lifecycle.PodID] {
	return onEvents(func(_ context.Context, old, now *corev1.Pod, first bool, q queue) {
		rules := &r.settings.Load().Rules
		// A watch that was broken for a while shows a deletion and a creation under one name as an update.
		if old != nil && (now == nil || now.UID != old.UID) {
			r.Tracker.Departed(old)
			r.State.Panics.Departed(old, rules)
			enqueue(q, old)
		}
		if now == nil {
			return
		}
		if old == nil {
			r.Tracker.Arrived(lifecycle.PodIDOf(now), !first && isNew(now))
		}
		r.State.Panics.Arrived(now, rules)
		enqueue(q, now)
	})
}

// isNew reports whether a pod that came may have just been created. A DaemonSet's has a state only once it is to be deleted, and
// then its application has long been registered.
func isNew(pod *corev1.Pod) bool {
	at := lifecycle.State(pod)
	return at == appspub.LifecycleStatePreparingNormal || at == appspub.LifecycleStateNormal
}

// workloadEvents looks again at the pods of a workload whose spec changed, or that is gone.
func (r *PodReconciler) workloadEvents() handler.TypedEventHandler[client.Object, lifecycle.PodID] {
	return onEvents(func(ctx context.Context, old, now client.Object, _ bool, q queue) {
		if old != nil && now != nil && old.GetUID() == now.GetUID() && old.GetGeneration() == now.GetGeneration() {
			return
		}
		r.State.Workloads.Changed()
		if old == nil {
			return // its pods ask the API server for it
		}
		r.enqueueFound(ctx, q, client.InNamespace(old.GetNamespace()), clusterstate.OwnedBy(old.GetUID()))
		if now != nil && now.GetUID() != old.GetUID() {
			r.enqueueFound(ctx, q, client.InNamespace(now.GetNamespace()), clusterstate.OwnedBy(now.GetUID()))
		}
	})
}

// namespaceEvents looks again at the pods of a namespace that came, or whose labels changed. The cache refuses to be asked
// for the pods of a namespace that it does not watch. What the first list has needs nothing: the pods come by themselves.
func (r *PodReconciler) namespaceEvents() handler.TypedEventHandler[*metav1.PartialObjectMetadata, lifecycle.PodID] {
	return onEvents(func(ctx context.Context, old, now *metav1.PartialObjectMetadata, first bool, q queue) {
		if old != nil && now != nil && old.UID == now.UID && maps.Equal(old.Labels, now.Labels) {
			return
		}
		r.State.Workloads.Changed()
		if now != nil && !first && (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, now.Name)) {
			r.enqueueFound(ctx, q, client.InNamespace(now.Name))
		}
	})
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

// started is a source without events: it keeps the queue, for the pods that are woken.
func (r *PodReconciler) started(_ context.Context, q queue) error {
	r.queue.Store(&q)
	return nil
}

// wake looks again at a pod for whose call a slot is free.
func (r *PodReconciler) wake(id lifecycle.PodID, urgent bool) {
	priority := wokenPriority
	if urgent {
		priority += rolloutPriority
	}
	enqueueAt(*r.queue.Load(), priority, id)
}

// signalled is a source that calls do for each signal.
func signalled(signal <-chan struct{}, do func(context.Context, queue)) source.TypedSource[lifecycle.PodID] {
	return source.TypedFunc[lifecycle.PodID](func(ctx context.Context, q queue) error {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-signal:
					do(ctx, q)
				}
			}
		}()
		return nil
	})
}

// awaited holds the workers back until its channel is closed. It is a source without events.
type awaited struct{ done <-chan struct{} }

func (awaited) Start(context.Context, queue) error { return nil }

func (a awaited) WaitForSync(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
