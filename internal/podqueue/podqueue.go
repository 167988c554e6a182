// Package podqueue orders and fills the queue of the pod reconciler.
package podqueue

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Queue items include the pod's UID.
type Queue = workqueue.TypedRateLimitingInterface[lifecycle.PodID]

const (
	// PriorityRollout is for pods that rollouts wait for.
	PriorityRollout = 100
	// PriorityWoken is for pods with a free slot, before those without.
	PriorityWoken = 50
	// PriorityUsual is an event's.
	PriorityUsual = 0
)

// Add adds a pod, first if OpenKruise waits for it.
func Add(q Queue, pod *lifecycle.Pod) {
	if lifecycle.RolloutWaits(pod) {
		AddAt(q, PriorityRollout, lifecycle.PodIDOf(pod))
		return
	}
	q.Add(lifecycle.PodIDOf(pod))
}

// Wake adds a pod with a free slot; urgent if a rollout waits.
func Wake(q Queue, id lifecycle.PodID, urgent bool) {
	priority := PriorityWoken
	if urgent {
		priority += PriorityRollout
	}
	AddAt(q, priority, id)
}

// Behind returns a queue whose Add puts every pod last.
func Behind(q Queue) Queue { return behind{q} }

type behind struct{ Queue }

func (b behind) Add(id lifecycle.PodID) { AddAt(b.Queue, handler.LowPriority, id) }

// AddAt ignores the priority if the queue has none.
func AddAt(q Queue, priority int, ids ...lifecycle.PodID) {
	if priorities, ok := q.(priorityqueue.PriorityQueue[lifecycle.PodID]); ok {
		priorities.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, ids...)
		return
	}
	for _, id := range ids {
		q.Add(id)
	}
}

// OnEvents calls do for each event. old is nil for a create, now for a delete; first is of the initial list.
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

// Signalled is a source that calls do for each signal.
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

// Await holds the workers back until done closes.
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
