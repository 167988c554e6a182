package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// depart takes out what is left of a pod that is no longer in the cache. It knows the pod by its UID: another may have
// its name and its address by now.
func (r *PodReconciler) depart(ctx context.Context, req Request) (reconcile.Result, error) {
	page := r.ledger.open(req.UID, r.settings.Load().Registry)
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
	switch alive, err := r.alive(ctx, req); {
	case err != nil:
		return reconcile.Result{}, err
	case alive:
		return reconcile.Result{RequeueAfter: backoffCap}, nil // no event will say when it is gone
	}

	seen, err := r.remember(ctx, last)
	if err != nil {
		return reconcile.Result{}, err
	}
	decision := lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
	progress := r.converge(ctx, seen, decision)
	if progress.released() {
		r.forget(req.UID)
		return reconcile.Result{}, nil
	}
	return r.report(seen, decision, progress.wait), nil
}

// alive reports a pod that lives and has only lost the label that we watch for. It is left as it is.
func (r *PodReconciler) alive(ctx context.Context, req Request) (bool, error) {
	pod := &corev1.Pod{}
	err := r.apiReader.Get(ctx, req.NamespacedName, pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking whether the pod is gone: %w", err)
	}
	return pod.UID == req.UID && pod.DeletionTimestamp == nil, nil
}

// remember makes an observation of a pod as it was last seen.
func (r *PodReconciler) remember(ctx context.Context, last *corev1.Pod) (*observation, error) {
	workload, err := r.workloadOf(ctx, last)
	if err != nil {
		return nil, err
	}
	settings := r.settings.Load()
	seen := &observation{settings: settings, page: r.ledger.open(last.UID, settings.Registry)}
	seen.input = lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: settings.Ownership}
	r.observeInstances(seen, workload)
	return seen, nil
}

// nothingLeft reports whether the registry has acknowledged that every instance of the pod is absent, or never heard of
// one.
func (p *page) nothingLeft(last *corev1.Pod) bool {
	for _, c := range p.calls {
		if !c.stands(lifecycle.Absent) || !c.settled() {
			return false
		}
	}
	return len(p.calls) > 0 || p.fromBirth && !lifecycle.RecordOf(last).Exists()
}
