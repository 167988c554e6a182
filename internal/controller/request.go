package controller

import (
	"context"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Request names one pod by UID too: pods come and go under one name, and what the last one left must not be undone on
// the next.
type Request struct {
	types.NamespacedName
	UID types.UID
}

type requestQueue = workqueue.TypedRateLimitingInterface[Request]

const (
	// rolloutPriority puts what a rollout waits for before everything else.
	rolloutPriority = 100
	// turnAhead puts a pod for which a call is kept free before those that would have to wait for one.
	turnAhead = 50
)

func requestFor(pod *corev1.Pod) Request {
	return Request{NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID}
}

// enqueue adds a pod that Kruise waits for in front, and any other at the priority that the event has.
func enqueue(q requestQueue, pod *corev1.Pod) {
	if rolloutWaits(pod) {
		enqueueAt(q, rolloutPriority, requestFor(pod))
		return
	}
	q.Add(requestFor(pod))
}

func enqueueAt(q requestQueue, priority int, req Request) {
	priorities, ok := q.(priorityqueue.PriorityQueue[Request])
	if !ok {
		q.Add(req)
		return
	}
	priorities.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, req)
}

// enqueueLast adds a pod behind all others: nobody waits for it.
func enqueueLast(q requestQueue, req Request) {
	priorities, ok := q.(priorityqueue.PriorityQueue[Request])
	if !ok {
		q.Add(req)
		return
	}
	priority := handler.LowPriority
	priorities.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, req)
}

func rolloutWaits(pod *corev1.Pod) bool {
	switch appspub.LifecycleStateType(pod.Labels[appspub.LifecycleStateKey]) {
	case appspub.LifecycleStatePreparingDelete, appspub.LifecycleStatePreparingUpdate:
		return true
	default:
		return pod.DeletionTimestamp != nil
	}
}

// podEvents turns what happens to pods into requests.
func (r *PodReconciler) podEvents() handler.TypedEventHandler[*corev1.Pod, Request] {
	return handler.TypedFuncs[*corev1.Pod, Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q requestQueue) {
			r.ledger.arrived(e.Object.UID, !e.IsInInitialList)
			r.peers.arrived(e.Object, r.settings.Load())
			enqueue(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q requestQueue) {
			// A watch that was broken for a while shows a deletion and a creation under one name as an update.
			if e.ObjectOld.UID != e.ObjectNew.UID {
				r.ledger.departed(e.ObjectOld)
				r.peers.departed(e.ObjectOld, r.settings.Load())
				enqueue(q, e.ObjectOld)
			}
			r.peers.arrived(e.ObjectNew, r.settings.Load())
			enqueue(q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q requestQueue) {
			r.ledger.departed(e.Object)
			r.peers.departed(e.Object, r.settings.Load())
			enqueue(q, e.Object)
		},
	}
}

// workloadEvents looks again at the pods of a workload whose spec changed, or that is gone.
func (r *PodReconciler) workloadEvents() handler.TypedEventHandler[*kruisev1alpha1.CloneSet, Request] {
	return handler.TypedFuncs[*kruisev1alpha1.CloneSet, Request]{
		CreateFunc: func(context.Context, event.TypedCreateEvent[*kruisev1alpha1.CloneSet], requestQueue) {
			r.workloads.changed()
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*kruisev1alpha1.CloneSet], q requestQueue) {
			if e.ObjectOld.UID == e.ObjectNew.UID && e.ObjectOld.Generation == e.ObjectNew.Generation {
				return
			}
			r.workloads.changed()
			r.enqueuePodsOf(ctx, e.ObjectNew, q)
			if e.ObjectOld.UID != e.ObjectNew.UID {
				r.enqueuePodsOf(ctx, e.ObjectOld, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*kruisev1alpha1.CloneSet], q requestQueue) {
			r.workloads.changed()
			r.enqueuePodsOf(ctx, e.Object, q)
		},
	}
}

// ownerIndex finds the pods of a workload by its UID.
const ownerIndex = "controller-uid"

func ownerUID(obj client.Object) []string {
	for _, owner := range obj.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller {
			return []string{string(owner.UID)}
		}
	}
	return nil
}

func (r *PodReconciler) enqueuePodsOf(ctx context.Context, workload client.Object, q requestQueue) {
	r.enqueueFound(ctx, q, client.InNamespace(workload.GetNamespace()),
		client.MatchingFields{ownerIndex: string(workload.GetUID())})
}

// enqueueFound adds the pods of the cache that the options choose.
func (r *PodReconciler) enqueueFound(ctx context.Context, q requestQueue, which ...client.ListOption) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing the pods to look at after a change")
		return
	}
	for i := range pods.Items {
		enqueue(q, &pods.Items[i])
	}
}

// appliedSettings looks again at every pod when the settings changed, and at what departed pods left.
func (r *PodReconciler) appliedSettings(ctx context.Context, q requestQueue) error {
	return whenever(ctx, r.applied, func() { r.enqueueAll(ctx, q) })
}

// whenever is what a source does that waits for a signal: do is called for each, in a goroutine that ends with ctx.
func whenever(ctx context.Context, signal <-chan struct{}, do func()) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-signal:
				do()
			}
		}
	}()
	return nil
}

func (r *PodReconciler) enqueueAll(ctx context.Context, q requestQueue) {
	r.enqueueFound(ctx, q)
	for _, pod := range r.ledger.departures() {
		enqueue(q, pod)
	}
}
