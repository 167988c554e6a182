package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// depart takes out what is left of a pod that is no longer in the cache. It knows the pod by its UID: another may have
// its name and its address by now.
func (r *PodReconciler) depart(ctx context.Context, id lifecycle.PodID) (reconcile.Result, error) {
	settings := r.settings.Load()
	tracked, note := r.Tracker.Open(id, settings.server), r.notes.of(id.UID)
	last := tracked.Departed()
	switch {
	case last == nil && tracked.CloseUnlessFound():
		r.notes.forget(id.UID)
		return reconcile.Result{}, nil
	case last == nil:
		return reconcile.Result{RequeueAfter: staleRecheck}, nil // the event that says so is on its way
	case !note.lingers && tracked.NothingLeft(lifecycle.RecordOf(last), settings.asks):
		r.forget(id.UID)
		return reconcile.Result{}, nil
	}
	live, err := clusterstate.Live(ctx, r.APIReader, id)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case live != nil && live.DeletionTimestamp == nil:
		return reconcile.Result{RequeueAfter: backoffCap}, nil // no event will say when it is gone
	}
	if note.lingers = live != nil; note.lingers {
		last = live
	}
	return r.undo(ctx, id, last)
}

// undo takes the pod out of the registries and, where it is still there to be freed, frees it: as any pod that is being
// deleted, once the registries have acknowledged, or the failure policy or a person says so.
func (r *PodReconciler) undo(ctx context.Context, id lifecycle.PodID, pod *corev1.Pod) (reconcile.Result, error) {
	seen, err := r.remember(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.refuseSkip(seen, seen.departure())
	if moved, err := r.arm(ctx, seen, seen.departure()); moved || err != nil {
		return r.unwritten(seen, seen.departure(), err)
	}
	decision := seen.departure()
	progress := r.converge(ctx, seen, decision)
	progress.record = nil // it goes with the pod
	moved, err := r.conclude(ctx, seen, decision, &progress)
	switch {
	case moved || err != nil:
		return r.unwritten(seen, decision, err)
	case !progress.released() && !progress.rehearsed():
		return r.report(seen, seen.departure(), progress.blocker), nil
	}
	r.forget(id.UID)
	return reconcile.Result{}, nil
}

// departure is the decision on a pod that is not in the cache. Nothing is left to be freed of one that is gone.
func (o *observation) departure() lifecycle.Decision {
	if o.note.lingers {
		return lifecycle.Decide(o.input)
	}
	return lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
}

// remember makes an observation of a pod as it was last seen, or as it is where it lingers.
func (r *PodReconciler) remember(ctx context.Context, last *corev1.Pod) (*observation, error) {
	settings := r.settings.Load()
	seen := &observation{
		settings: settings, tracked: r.Tracker.Open(lifecycle.PodIDOf(last), settings.server), note: r.notes.of(last.UID),
		input: lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: settings.Ownership},
	}
	r.observeTargets(seen, service.Node{})
	if !seen.note.lingers {
		return seen, nil
	}
	workload, err := r.workloadOf(ctx, last)
	if err != nil {
		return nil, err
	}
	seen.skip = lifecycle.SkipOf(last, clusterstate.AsLifecycle(workload))
	seen.observeGuard(workload != nil)
	return seen, nil
}
