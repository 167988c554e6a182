package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/gate"
)

// turnRecheck is for a turn that nobody has told us of, which would be an error of ours.
const turnRecheck = time.Minute

// enter returns leave where a call for the target may be made now, which must be called with its error; else why not. The
// pod is woken then when it is its turn, and holds no worker until it is.
func (r *PodReconciler) enter(seen *observation, t target) (leave func(error), refused wait) {
	pod := seen.pod()
	urgent := rolloutWaits(pod)
	come := turn{Request: requestFor(pod), priority: turnAhead}
	if urgent {
		come.priority += rolloutPriority
	}
	leave, refusal := seen.settings.Registries[t.registry].Gate.Enter(gate.Caller{
		ID: string(pod.UID), Service: t.instance.Service, Urgent: urgent,
		Wake: func() { r.turns.add(come) },
	})
	if refusal == nil {
		return leave, wait{}
	}
	return nil, queued(t, refusal)
}

// queued says why no call may be made now.
func queued(t target, refusal *gate.Refusal) wait {
	if outage := refusal.Outage; outage != nil {
		return wait{reason: ReasonRegistryUnavailable, after: turnRecheck, message: fmt.Sprintf(
			"%s: no call is made: the circuit breaker is open since %s, tries one call at %s, and then every 5 s; the last "+
				"failure: %v", t, outage.Since.Format(time.RFC3339), outage.Probe.Format(time.RFC3339), outage.Err)}
	}
	return wait{reason: ReasonQueued, after: turnRecheck, unasked: true,
		message: t.String() + ": waits for its turn: as many calls are under way as the registry's maxInFlight allows"}
}

// endVisits gives up what the pod waited for at the gates and needs no longer. Those of settings that were replaced are of
// no account: every pod is looked at again with the new ones.
func (r *PodReconciler) endVisits(uid types.UID) {
	for _, reg := range r.settings.Load().Registries {
		reg.Gate.EndVisit(string(uid))
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
