package controller

import (
	"context"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// turnRecheck is for a pod that nothing has woken, which would be an error of Rollcall.
const turnRecheck = time.Minute

// caller asks for a call in the pod's name. Where the call may not be made now, the pod is woken when it may try again, and
// holds no worker until then. begin is called just before the registry is asked.
func (r *PodReconciler) caller(seen *observation, begin func()) registryclient.Caller {
	pod := seen.pod()
	urgent := rolloutWaits(pod)
	come := turn{Request: requestFor(pod), priority: turnAhead}
	if urgent {
		come.priority += rolloutPriority
	}
	return registryclient.Caller{
		ID: string(pod.UID), Urgent: urgent, Wake: func() { r.turns.add(come) }, Begin: begin,
	}
}

// turns are the pods whose turn has come, on their way to the queue.
type turns struct {
	mu    sync.Mutex
	come  []turn
	ready chan struct{}
}

type turn struct {
	Request
	priority int
}

func newTurns() *turns { return &turns{ready: make(chan struct{}, 1)} }

func (t *turns) add(come turn) {
	t.mu.Lock()
	t.come = append(t.come, come)
	t.mu.Unlock()
	select {
	case t.ready <- struct{}{}:
	default: // somebody is on the way already
	}
}

func (t *turns) take() []turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	come := t.come
	t.come = nil
	return come
}

// comingTurns looks again at the pods whose turn has come.
func (r *PodReconciler) comingTurns(ctx context.Context, q requestQueue) error {
	return whenever(ctx, r.turns.ready, func() {
		for _, come := range r.turns.take() {
			enqueueAt(q, come.priority, come.Request)
		}
	})
}
