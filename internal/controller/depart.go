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

// undo takes the pod out of the registry and, where it is still there to be freed, frees it.
func (r *PodReconciler) undo(ctx context.Context, req Request, pod *corev1.Pod) (reconcile.Result, error) {
	seen := r.remember(pod)
	decision := lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
	if seen.page.lingers {
		decision = lifecycle.Decide(seen.input)
	}
	progress := r.converge(ctx, seen, decision)
	if !progress.released() && !progress.rehearsed() {
		return r.report(seen, decision, progress.wait), nil
	}
	if moved, err := r.patch(ctx, seen, decision.Then, nil); moved || err != nil {
		return r.retry(req, moved), err
	}
	r.forget(req.UID)
	return reconcile.Result{}, nil
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

// remember makes an observation of a pod as it was last seen.
func (r *PodReconciler) remember(last *corev1.Pod) *observation {
	settings := r.settings.Load()
	seen := &observation{settings: settings, page: r.ledger.open(requestFor(last), settings)}
	seen.input = lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: settings.Ownership}
	r.observeTargets(seen, service.Node{})
	return seen
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
