package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// depart takes out what is left of a pod that is no longer in the cache. It knows the pod by its UID: another may have
// its name and its address by now.
func (r *PodReconciler) depart(ctx context.Context, req Request) (reconcile.Result, error) {
	page := r.ledger.open(req, r.settings.Load())
	last := r.ledger.lastSeen(page)
	switch {
	case last == nil && page.found:
		return reconcile.Result{RequeueAfter: staleRecheck}, nil // the event that says so is on its way
	case last == nil:
		r.ledger.closeUnlessDeparted(req.UID)
		return reconcile.Result{}, nil
	case page.nothingLeft(last):
		r.forget(req.UID)
		return reconcile.Result{}, nil
	}
	live, err := r.stillThere(ctx, req)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case live != nil && live.DeletionTimestamp == nil:
		return reconcile.Result{RequeueAfter: backoffCap}, nil // no event will say when it is gone
	}
	if page.lingers = live != nil; page.lingers {
		last = live
	}
	return r.undo(ctx, req, last)
}

// undo takes the pod out of the registry and, where it is still there to be freed, frees it: as any pod that is being deleted,
// once the registry has acknowledged, or the failure policy or a person says so.
func (r *PodReconciler) undo(ctx context.Context, req Request, pod *corev1.Pod) (reconcile.Result, error) {
	seen, err := r.remember(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.refuseSkip(seen, seen.departure())
	if moved, err := r.prepare(ctx, seen, seen.departure()); moved || err != nil {
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
		return r.report(seen, seen.departure(), progress.wait), nil
	}
	r.forget(req.UID)
	return reconcile.Result{}, nil
}

// departure is the decision on a pod that is not in the cache. Nothing is left to be freed of one that is gone.
func (o *observation) departure() lifecycle.Decision {
	if o.page.lingers {
		return lifecycle.Decide(o.input)
	}
	return lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
}

// stillThere returns a pod that has only lost the label that we watch for, or nil. While it lives it is left as it is; a
// dying one still has to be freed.
func (r *PodReconciler) stillThere(ctx context.Context, req Request) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.apiReader.Get(ctx, req.NamespacedName, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != req.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("asking whether the pod is gone: %w", err)
	}
	return pod, nil
}

// remember makes an observation of a pod as it was last seen, or as it is where it lingers.
func (r *PodReconciler) remember(ctx context.Context, last *corev1.Pod) (*observation, error) {
	settings := r.settings.Load()
	seen := &observation{settings: settings, page: r.ledger.open(requestFor(last), settings)}
	seen.input = lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: settings.Ownership}
	r.observeTargets(seen, service.Node{})
	if !seen.page.lingers {
		return seen, nil
	}
	workload, err := r.workloadOf(ctx, last)
	if err != nil {
		return nil, err
	}
	seen.skip = lifecycle.SkipOf(last, asLifecycle(workload))
	seen.input.Skips = seen.skip.Hooks
	observeGuard(seen, workload != nil)
	return seen, nil
}

// nothingLeft reports whether the registry has acknowledged that every instance of the pod is absent, or never heard of
// one.
func (p *page) nothingLeft(last *corev1.Pod) bool {
	if p.lingers {
		return false
	}
	for in, c := range p.calls {
		if !c.stands(lifecycle.Absent) || !c.settled() || p.asks(in) {
			return false
		}
	}
	record := lifecycle.RecordOf(last)
	for _, in := range record.Instances {
		if p.calls[in] == nil {
			return false
		}
	}
	return len(p.calls) > 0 || p.fromBirth && !record.Exists()
}
