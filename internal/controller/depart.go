package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// observeDeparted gathers what it takes to undo what is left of a pod that is no longer in the cache: the pod as it was last
// seen, or as it is where it lingers without the label that the cache selects by. It knows the pod by its UID: another may have
// its name and its address by now.
func (r *PodReconciler) observeDeparted(
	ctx context.Context, id lifecycle.PodID, seen *observation,
) (*observation, time.Duration, error) {
	last := seen.tracked.Departed()
	switch {
	case last == nil && seen.tracked.CloseUnlessFound():
		r.notes.forget(id.UID)
		return nil, 0, nil
	case last == nil:
		return nil, staleRecheck, nil // the event that says so is on its way
	case seen.nothingLeft(last):
		r.forget(id.UID)
		return nil, 0, nil
	}
	live, err := clusterstate.Live(ctx, r.APIReader, id)
	switch {
	case err != nil:
		return nil, 0, err
	case live != nil && live.DeletionTimestamp == nil:
		return nil, backoffCap, nil // no event will say when it is gone
	}
	seen.departed, seen.note.lingers = true, live != nil
	seen.input = lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: seen.settings.Ownership}
	if seen.note.lingers {
		seen.input.Pod, seen.input.Record = live, lifecycle.RecordOf(live)
	}
	r.observeTargets(seen, service.Node{})
	if err := r.observePassedOn(ctx, seen); err != nil || !seen.note.lingers {
		return seen, 0, err
	}
	workload, err := r.workloadOf(ctx, live)
	if err != nil {
		return nil, 0, err
	}
	seen.skip = lifecycle.SkipOf(live, clusterstate.AsLifecycle(workload))
	seen.observeGuard(workload != nil)
	return seen, 0, nil
}

// nothingLeft reports whether a pod that is gone can be forgotten. What a registry remembers of its application can be cleared
// only now.
func (o *observation) nothingLeft(last *corev1.Pod) bool {
	return !o.note.lingers && !o.knowsApps() && o.tracked.NothingLeft(lifecycle.RecordOf(last), o.settings.asks)
}

// decide returns the decision on the pod as it is now. Nothing is left to be freed of one that is gone.
func (o *observation) decide() lifecycle.Decision {
	if o.departed && !o.note.lingers {
		return lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
	}
	return lifecycle.Decide(o.input)
}
