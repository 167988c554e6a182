package controller

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// enqueuer knows which pods an event concerns.
type enqueuer struct {
	Options

	settings atomic.Pointer[observe.Settings]
}

// podEvents is for events of a [clusterstate.PodCache].
func (e *enqueuer) podEvents() handler.TypedEventHandler[client.Object, lifecycle.PodID] {
	return podqueue.OnEvents(func(_ context.Context, before, after client.Object, first bool, q podqueue.Queue) {
		old, _ := before.(*lifecycle.Pod)
		now, _ := after.(*lifecycle.Pod)
		rules := &e.settings.Load().Rules
		// After a broken watch, a deletion and a creation come as an update.
		if old != nil && (now == nil || now.UID != old.UID) && e.notesEndOf(old) {
			e.ended(q, old)
		}
		if now == nil || !e.takesCareOf(now) {
			return
		}
		if old != nil && clusterstate.Behind(now.ResourceVersion, old.ResourceVersion) {
			e.State.Panics.Forget(old.UID, rules) // restored from a backup: the older version counts
		}
		if old == nil {
			e.Tracker.Arrived(lifecycle.PodIDOf(now), !first && lifecycle.MayBeNew(now))
		}
		e.State.Panics.Arrived(now, rules)
		podqueue.Add(q, now)
	})
}

func (e *enqueuer) ended(q podqueue.Queue, pod *lifecycle.Pod) {
	e.Tracker.Uncached(pod)
	e.State.Panics.Forget(pod.UID, &e.settings.Load().Rules)
	podqueue.Add(q, pod)
}

// takesCareOf is false for pods of a namespace that is not this manager's: what was known of them is queued with the namespace's event. So
// are, once the cache has their namespace, those that nothing is known of.
func (e *enqueuer) takesCareOf(pod *lifecycle.Pod) bool {
	scope := e.State.Scope
	return scope.Watches(pod.Namespace) || !scope.Excludes(pod.Namespace) && e.Tracker.Has(pod.UID)
}

// notesEndOf is also true for what is still known of a namespace that is not this manager's: if that comes back before the pod is
// forgotten, no other event tells that the pod has gone.
func (e *enqueuer) notesEndOf(pod *lifecycle.Pod) bool {
	return e.State.Scope.Watches(pod.Namespace) || e.Tracker.Has(pod.UID)
}

// workloadEvents enqueues a workload's pods if it is gone, or changed for Rollcall.
func (e *enqueuer) workloadEvents() handler.TypedEventHandler[client.Object, lifecycle.PodID] {
	return podqueue.OnEvents(func(ctx context.Context, old, now client.Object, _ bool, q podqueue.Queue) {
		if e.State.Scope.Excludes(cmp.Or(now, old).GetNamespace()) {
			return
		}
		if clusterstate.SameWorkload(old, now) {
			if !clusterstate.SameTraffic(old, now) {
				e.enqueueFound(ctx, q, clusterstate.OwnedBy(now.GetUID()))
			}
			return
		}
		e.State.Workloads.Changed()
		if old == nil {
			return // its pods ask the API server for it
		}
		e.tellOfLost(old, now)
		e.enqueueFound(ctx, q, clusterstate.OwnedBy(old.GetUID()))
		if now != nil && now.GetUID() != old.GetUID() {
			e.enqueueFound(ctx, q, clusterstate.OwnedBy(now.GetUID()))
		}
	})
}

// tellOfLost makes an Event on a workload whose hooks somebody took away. OpenKruise waits no longer then, and no pod shows that.
func (e *enqueuer) tellOfLost(old, now client.Object) {
	if now == nil || now.GetUID() != old.GetUID() || now.GetDeletionTimestamp() != nil {
		return
	}
	owned := e.settings.Load().Ownership
	was := lifecycle.HooksOf(clusterstate.AsWorkload(old).ForDecision(), owned)
	lost := lifecycle.HooksOf(clusterstate.AsWorkload(now).ForDecision(), owned).Lost(was)
	if len(lost) == 0 {
		return
	}
	names := make([]string, len(lost))
	for i, hook := range lost {
		names[i] = string(hook)
	}
	e.Recorder.Eventf(now, nil, reason.HooksRemoved.Event(), string(reason.HooksRemoved), "Reconcile",
		"spec.lifecycle lost Rollcall's handlers of %s: OpenKruise no longer waits there, and if the same write changed the template, updates "+
			"the first pods without waiting. If it was not you, find out who writes the workload", strings.Join(names, ", "))
}

// namespaceEvents enqueues the pods of a new or relabelled namespace of this manager, and what is known of one that it leaves. In the first
// list pods come by themselves.
func (e *enqueuer) namespaceEvents() handler.TypedEventHandler[*metav1.PartialObjectMetadata, lifecycle.PodID] {
	return podqueue.OnEvents(func(ctx context.Context, old, now *metav1.PartialObjectMetadata, first bool, q podqueue.Queue) {
		if old != nil && now != nil && old.UID == now.UID && maps.Equal(old.Labels, now.Labels) {
			return
		}
		e.State.Workloads.Changed()
		if now == nil || first {
			return
		}
		e.follow(ctx, q, old, now)
		switch {
		case e.settings.Load().Services.Allowed.SharesByLabel(): // it may count with others now, or no longer
			e.enqueueFound(ctx, q, clusterstate.Which{})
		case e.State.Scope.Watches(now.Name):
			e.enqueueFound(ctx, q, clusterstate.InNamespace(now.Name))
		}
	})
}

// follow takes in the pods of a namespace that the selector begins to match, and enqueues what is known of those of one that it does not
// match, to be forgotten.
func (e *enqueuer) follow(ctx context.Context, q podqueue.Queue, old, now *metav1.PartialObjectMetadata) {
	scope, rules := e.State.Scope, &e.settings.Load().Rules
	switch {
	case !scope.ByLabel():
	case !scope.Selects(now):
		e.State.Panics.ForgetIn(now.Name, rules)
		podqueue.AddAt(q, podqueue.PriorityUsual, e.Tracker.In(now.Name)...)
		if scope.Selects(old) {
			log.FromContext(ctx).Info("A namespace no longer matches the selector: its pods are left alone", "namespace", now.Name)
		}
	case !scope.Selects(old):
		joining := e.found(ctx, clusterstate.InNamespace(now.Name))
		for _, pod := range joining {
			e.Tracker.Joined(lifecycle.PodIDOf(pod), e.Clock.Now())
			e.State.Panics.Arrived(pod, rules)
		}
		e.noteEnded(ctx, q, joining)
		log.FromContext(ctx).Info("A namespace matches the selector: its pods are taken in", "namespace", now.Name)
	}
}

// noteEnded is for pods that may have ended after they were listed and before they were noted: no other event tells of that.
func (e *enqueuer) noteEnded(ctx context.Context, q podqueue.Queue, listed []*lifecycle.Pod) {
	for _, pod := range listed {
		if cached, err := e.Pods.Get(ctx, client.ObjectKeyFromObject(pod)); apierrors.IsNotFound(err) || err == nil && cached.UID != pod.UID {
			e.ended(q, pod)
		}
	}
}

// nodeEvents enqueues a node's pods: if only its labels changed, behind all others.
func (e *enqueuer) nodeEvents() handler.TypedEventHandler[*corev1.Node, lifecycle.PodID] {
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
			e.enqueueFound(ctx, q, clusterstate.OnNode(now.Name))
		case !now.SamePlace(old):
			e.enqueueFound(ctx, podqueue.Behind(q), clusterstate.OnNode(now.Name))
		}
	})
}

func (e *enqueuer) enqueueFound(ctx context.Context, q podqueue.Queue, which clusterstate.Which) {
	for _, pod := range e.found(ctx, which) {
		podqueue.Add(q, pod)
	}
}

func (e *enqueuer) found(ctx context.Context, which clusterstate.Which) []*lifecycle.Pod {
	pods, err := e.Pods.List(ctx, which)
	if err != nil {
		log.FromContext(ctx).Error(err, "failed to list the pods to reconcile after a change")
	}
	return pods
}

func (e *enqueuer) enqueueAll(ctx context.Context, q podqueue.Queue) {
	e.enqueueFound(ctx, q, clusterstate.Which{})
	for _, pod := range e.Tracker.AllUncached() {
		podqueue.Add(q, pod)
	}
}

// enqueueDoubted adds what a registry misses first, and what only differs last.
func (e *enqueuer) enqueueDoubted(_ context.Context, q podqueue.Queue) {
	missed, doubtful := e.Tracker.TakeDoubted()
	podqueue.AddAt(q, podqueue.PriorityUsual, missed...)
	podqueue.AddAt(q, handler.LowPriority, doubtful...)
}

func (e *enqueuer) enqueueCalmed(_ context.Context, q podqueue.Queue) {
	podqueue.AddAt(q, podqueue.PriorityUsual, e.State.Panics.TakeCalmed()...)
}

// enqueueShares adds the pods of workloads whose revisions have more pods or fewer than their shares were made for.
func (e *enqueuer) enqueueShares(ctx context.Context, q podqueue.Queue) {
	for _, workload := range e.State.Panics.Revisions.TakeChanged() {
		e.enqueueFound(ctx, podqueue.Behind(q), clusterstate.OwnedBy(workload))
	}
}
