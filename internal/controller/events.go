package controller

import (
	"cmp"
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// podEvents is for events of a [clusterstate.PodCache].
func (r *PodReconciler) podEvents() handler.TypedEventHandler[client.Object, lifecycle.PodID] {
	return podqueue.OnEvents(func(_ context.Context, before, after client.Object, first bool, q podqueue.Queue) {
		old, _ := before.(*lifecycle.Pod)
		now, _ := after.(*lifecycle.Pod)
		rules := &r.settings.Load().Rules
		if !r.takesCareOf(cmp.Or(now, old)) {
			return
		}
		// After a broken watch, a deletion and a creation come as an update.
		if old != nil && (now == nil || now.UID != old.UID) {
			r.Tracker.Uncached(old)
			r.State.Panics.Forget(old.UID, rules)
			podqueue.Add(q, old)
		}
		if now == nil {
			return
		}
		if old != nil && clusterstate.Behind(now.ResourceVersion, old.ResourceVersion) {
			r.State.Panics.Forget(old.UID, rules) // restored from a backup: the older version counts
		}
		if old == nil {
			r.Tracker.Arrived(lifecycle.PodIDOf(now), !first && lifecycle.MayBeNew(now))
		}
		r.State.Panics.Arrived(now, rules)
		podqueue.Add(q, now)
	})
}

// takesCareOf is false for pods of a namespace that is not this manager's: what was known of them is queued with the namespace's event. So
// are, once the cache has their namespace, those that nothing is known of.
func (r *PodReconciler) takesCareOf(pod *lifecycle.Pod) bool {
	scope := r.State.Scope
	return scope.Watches(pod.Namespace) || !scope.Excludes(pod.Namespace) && r.Tracker.Has(pod.UID)
}

// workloadEvents enqueues a workload's pods if it is gone, or changed for Rollcall.
func (r *PodReconciler) workloadEvents() handler.TypedEventHandler[client.Object, lifecycle.PodID] {
	return podqueue.OnEvents(func(ctx context.Context, old, now client.Object, _ bool, q podqueue.Queue) {
		if r.State.Scope.Excludes(cmp.Or(now, old).GetNamespace()) {
			return
		}
		if clusterstate.SameWorkload(old, now) {
			if !clusterstate.SameTraffic(old, now) {
				r.enqueueFound(ctx, q, clusterstate.OwnedBy(now.GetUID()))
			}
			return
		}
		r.State.Workloads.Changed()
		if old == nil {
			return // its pods ask the API server for it
		}
		r.tellOfLost(old, now)
		r.enqueueFound(ctx, q, clusterstate.OwnedBy(old.GetUID()))
		if now != nil && now.GetUID() != old.GetUID() {
			r.enqueueFound(ctx, q, clusterstate.OwnedBy(now.GetUID()))
		}
	})
}

// tellOfLost makes an Event on a workload whose hooks somebody took away. OpenKruise waits no longer then, and no pod shows that.
func (r *PodReconciler) tellOfLost(old, now client.Object) {
	if now == nil || now.GetUID() != old.GetUID() || now.GetDeletionTimestamp() != nil {
		return
	}
	owned := r.settings.Load().Ownership
	was := lifecycle.HooksOf(clusterstate.AsWorkload(old).ForDecision(), owned)
	lost := lifecycle.HooksOf(clusterstate.AsWorkload(now).ForDecision(), owned).Lost(was)
	if len(lost) == 0 {
		return
	}
	names := make([]string, len(lost))
	for i, hook := range lost {
		names[i] = string(hook)
	}
	r.Recorder.Eventf(now, nil, reason.HooksRemoved.Event(), string(reason.HooksRemoved), "Reconcile",
		"spec.lifecycle lost Rollcall's handlers of %s: OpenKruise no longer waits there, and if the same write changed the template, updates "+
			"the first pods without waiting. If it was not you, find out who writes the workload", strings.Join(names, ", "))
}

// namespaceEvents enqueues the pods of a new or relabelled namespace of this manager, and what is known of one that it leaves. In the first
// list pods come by themselves.
func (r *PodReconciler) namespaceEvents() handler.TypedEventHandler[*metav1.PartialObjectMetadata, lifecycle.PodID] {
	return podqueue.OnEvents(func(ctx context.Context, old, now *metav1.PartialObjectMetadata, first bool, q podqueue.Queue) {
		if old != nil && now != nil && old.UID == now.UID && maps.Equal(old.Labels, now.Labels) {
			return
		}
		r.State.Workloads.Changed()
		if now == nil || first {
			return
		}
		r.follow(ctx, q, old, now)
		switch {
		case r.settings.Load().Services.Allowed.SharesByLabel(): // it may count with others now, or no longer
			r.enqueueFound(ctx, q, clusterstate.Which{})
		case r.State.Scope.Watches(now.Name):
			r.enqueueFound(ctx, q, clusterstate.InNamespace(now.Name))
		}
	})
}

// follow takes in the pods of a namespace that the selector begins to match, and enqueues what is known of those of one that it does not
// match, to be forgotten.
func (r *PodReconciler) follow(ctx context.Context, q podqueue.Queue, old, now *metav1.PartialObjectMetadata) {
	scope, rules := r.State.Scope, &r.settings.Load().Rules
	switch {
	case !scope.ByLabel():
	case !scope.Selects(now):
		r.State.Panics.ForgetIn(now.Name, rules)
		podqueue.AddAt(q, podqueue.PriorityUsual, r.Tracker.In(now.Name)...)
		if scope.Selects(old) {
			log.FromContext(ctx).Info("A namespace no longer matches the selector: its pods are left alone", "namespace", now.Name)
		}
	case !scope.Selects(old):
		for _, pod := range r.found(ctx, clusterstate.InNamespace(now.Name)) {
			r.Tracker.Joined(lifecycle.PodIDOf(pod), r.Clock.Now())
			r.State.Panics.Arrived(pod, rules)
		}
		log.FromContext(ctx).Info("A namespace matches the selector: its pods are taken in", "namespace", now.Name)
	}
}

// nodeEvents enqueues a node's pods: if only its labels changed, behind all others.
func (r *PodReconciler) nodeEvents() handler.TypedEventHandler[*corev1.Node, lifecycle.PodID] {
	return podqueue.OnEvents(func(ctx context.Context, before, after *corev1.Node, first bool, q podqueue.Queue) {
		old, now := lifecycle.NodeOf(before), lifecycle.NodeOf(after)
		if now == nil {
			return
		}
		sameFate := old != nil && now.SameFate(old)
		if !sameFate {
			if why := lifecycle.UnreadableEnd(&lifecycle.Pod{}, now); why != "" {
				log.FromContext(ctx).Info("The announced end of a node is ignored", "node", now.Name, "because", why)
			}
		}
		switch {
		case first:
		case !sameFate:
			r.enqueueFound(ctx, q, clusterstate.OnNode(now.Name))
		case !now.SamePlace(old):
			r.enqueueFound(ctx, podqueue.Behind(q), clusterstate.OnNode(now.Name))
		}
	})
}

func (r *PodReconciler) enqueueFound(ctx context.Context, q podqueue.Queue, which clusterstate.Which) {
	for _, pod := range r.found(ctx, which) {
		podqueue.Add(q, pod)
	}
}

func (r *PodReconciler) found(ctx context.Context, which clusterstate.Which) []*lifecycle.Pod {
	pods, err := r.Pods.List(ctx, which)
	if err != nil {
		log.FromContext(ctx).Error(err, "failed to list the pods to reconcile after a change")
	}
	return pods
}

func (r *PodReconciler) enqueueAll(ctx context.Context, q podqueue.Queue) {
	r.enqueueFound(ctx, q, clusterstate.Which{})
	for _, pod := range r.Tracker.AllUncached() {
		podqueue.Add(q, pod)
	}
}

// enqueueDoubted adds what a registry misses first, and what only differs last.
func (r *PodReconciler) enqueueDoubted(_ context.Context, q podqueue.Queue) {
	missed, doubtful := r.Tracker.TakeDoubted()
	podqueue.AddAt(q, podqueue.PriorityUsual, missed...)
	podqueue.AddAt(q, handler.LowPriority, doubtful...)
}

func (r *PodReconciler) enqueueCalmed(_ context.Context, q podqueue.Queue) {
	podqueue.AddAt(q, podqueue.PriorityUsual, r.State.Panics.TakeCalmed()...)
}

// enqueueShares adds the pods of workloads whose revisions have more pods or fewer than their shares were made for.
func (r *PodReconciler) enqueueShares(ctx context.Context, q podqueue.Queue) {
	for _, workload := range r.State.Panics.Revisions.TakeChanged() {
		r.enqueueFound(ctx, podqueue.Behind(q), clusterstate.OwnedBy(workload))
	}
}

func (r *PodReconciler) started(_ context.Context, q podqueue.Queue) error {
	r.queue.Store(&q)
	return nil
}

func (r *PodReconciler) wake(id lifecycle.PodID, urgent bool) {
	podqueue.Wake(*r.queue.Load(), id, urgent)
}
