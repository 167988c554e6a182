// Package podqueue is the queue of the pod reconciler: in which order pods are looked at, and what puts them into it.
package podqueue

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Queue holds pods by name and UID, so a new pod under an old name is an item of its own.
type Queue = workqueue.TypedRateLimitingInterface[lifecycle.PodID]

const (
	// PriorityRollout is for what a rollout waits for: before everything else.
	PriorityRollout = 100
	// PriorityWoken is for a pod for which a slot is free: before those that would have to wait for one.
	PriorityWoken = 50
	// PriorityUsual is that of an event.
	PriorityUsual = 0
)

// Add adds a pod that OpenKruise waits for in front, and any other at the priority that the event has.
func Add(q Queue, pod *corev1.Pod) {
	if lifecycle.RolloutWaits(pod) {
		AddAt(q, PriorityRollout, lifecycle.PodIDOf(pod))
		return
	}
	q.Add(lifecycle.PodIDOf(pod))
}

// Wake adds a pod for which a slot is free; urgent is one that a rollout waits for.
func Wake(q Queue, id lifecycle.PodID, urgent bool) {
	priority := PriorityWoken
	if urgent {
		priority += PriorityRollout
	}
	AddAt(q, priority, id)
}

// Behind is the queue where Add puts pods behind all others, also those that a rollout waits for.
func Behind(q Queue) Queue { return behind{q} }

type behind struct{ Queue }

func (b behind) Add(id lifecycle.PodID) { AddAt(b.Queue, handler.LowPriority, id) }

// AddAt adds pods at a priority. A queue without priorities takes them like any other.
func AddAt(q Queue, priority int, ids ...lifecycle.PodID) {
	if priorities, ok := q.(priorityqueue.PriorityQueue[lifecycle.PodID]); ok {
		priorities.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, ids...)
		return
	}
	for _, id := range ids {
		q.Add(id)
	}
}

// OnEvents calls do with each change of an object: old is nil of one that came, which the informer's first list may have had,
// and now is nil of one that is gone.
func OnEvents[T client.Object](
	do func(ctx context.Context, old, now T, first bool, q Queue),
) handler.TypedEventHandler[T, lifecycle.PodID] {
	var none T
	return handler.TypedFuncs[T, lifecycle.PodID]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q Queue) {
			do(ctx, none, e.Object, e.IsInInitialList, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q Queue) {
			do(ctx, e.ObjectOld, e.ObjectNew, false, q)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q Queue) { do(ctx, e.Object, none, false, q) },
	}
}

// Signalled is a source that calls do for each signal, until the context of its start is done.
func Signalled(signal <-chan struct{}, do func(context.Context, Queue)) source.TypedSource[lifecycle.PodID] {
	return source.TypedFunc[lifecycle.PodID](func(ctx context.Context, q Queue) error {
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

// Await is a source without events, which holds the workers back until done is closed.
func Await(done <-chan struct{}) source.TypedSyncingSource[lifecycle.PodID] { return awaited{done} }

type awaited struct{ done <-chan struct{} }

func (awaited) Start(context.Context, Queue) error { return nil }

func (a awaited) WaitForSync(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
