package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets,verbs=get;list;watch

const (
	backoffBase = 100 * time.Millisecond
	// backoffCap is short on purpose: a pod that waits is capacity that is missing.
	backoffCap = 30 * time.Second
)

// Options are what a PodReconciler works with.
type Options struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server, where a cache that lags could be mistaken for an object that is gone.
	APIReader client.Reader
	Recorder  events.EventRecorder
	// Workers is how many pods are worked on at once.
	Workers int
	Clock   clock.PassiveClock
	// Ahead returns how much later, at most, the clock reads than that of the manager which led before. Nil is of one that
	// has the same clock.
	Ahead func() time.Duration
	// Listed is closed once every registry was asked what there is, or took too long: no pod is worked on before, since
	// what is listed costs no call. It must be closed within a minute. Nil waits for nothing.
	Listed <-chan struct{}
}

// PodReconciler keeps the registry in step with the life of pods.
type PodReconciler struct {
	client    client.Client
	apiReader client.Reader
	recorder  events.EventRecorder
	workers   int
	clock     clock.PassiveClock
	ahead     func() time.Duration
	listed    <-chan struct{}

	settings  atomic.Pointer[Settings]
	applied   chan struct{}
	lost      chan struct{}
	turns     *turns
	ledger    *ledger
	workloads *workloads
	claims    *claims
	peers     *peers
	releases  releases
	backoff   workqueue.TypedRateLimiter[types.UID]
}

// New returns a PodReconciler. Apply must be called before it is set up.
func New(o Options) *PodReconciler {
	names := newClaims()
	return &PodReconciler{
		client:    o.Client,
		apiReader: o.APIReader,
		recorder:  o.Recorder,
		workers:   o.Workers,
		clock:     o.Clock,
		ahead:     o.Ahead,
		listed:    o.Listed,
		applied:   make(chan struct{}, 1),
		lost:      make(chan struct{}, 1),
		turns:     newTurns(),
		ledger:    newLedger(),
		workloads: newWorkloads(o.Client, names),
		claims:    names,
		peers:     newPeers(),
		backoff:   workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](backoffBase, backoffCap),
	}
}

// Apply puts the settings in force, whole, and has every pod looked at again at once. It may be called at any time.
func (r *PodReconciler) Apply(s Settings) {
	r.settings.Store(&s)
	select {
	case r.applied <- struct{}{}:
	default: // the pods will be looked at already, with these settings
	}
}

// SetupWithManager adds the controller to the manager, which may have been started. OpenKruise's CRDs must be there.
func (r *PodReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, ownerIndex, ownerUID); err != nil {
		return fmt.Errorf("indexing pods by owner: %w", err)
	}
	if _, err := mgr.GetCache().GetInformer(ctx, NodeMetadata()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	options := controller.TypedOptions[Request]{
		Reconciler:              r,
		MaxConcurrentReconciles: r.workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Request](backoffBase, backoffCap),
	}
	options.DefaultFromConfig(mgr.GetControllerOptions())
	c, err := controller.NewTypedUnmanaged("pod", options)
	if err != nil {
		return fmt.Errorf("making the pod controller: %w", err)
	}
	for _, s := range []source.TypedSource[Request]{
		source.TypedKind(mgr.GetCache(), &corev1.Pod{}, r.podEvents()),
		source.TypedKind(mgr.GetCache(), &kruisev1alpha1.CloneSet{}, r.workloadEvents()),
		source.TypedKind(mgr.GetCache(), NamespaceMetadata(), r.namespaceEvents()),
		source.TypedFunc[Request](r.appliedSettings),
		source.TypedFunc[Request](r.lostInstances),
		source.TypedFunc[Request](r.calmedServices),
		source.TypedFunc[Request](r.comingTurns),
		awaited{r.listed},
	} {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watching for the pod controller: %w", err)
		}
	}
	// A manager that leads already starts the controller at once, and what it watches from then on would hold nobody back.
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("adding the pod controller: %w", err)
	}
	return nil
}

// Reconcile makes the registry say what it shall of one pod, and lets Kruise go on once the registry has acknowledged.
// It may be repeated, die half-way, or meet a pod that has moved on; every step starts from what is so now.
func (r *PodReconciler) Reconcile(ctx context.Context, req Request) (reconcile.Result, error) {
	seen, err := r.observe(ctx, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case seen.gone:
		return r.depart(ctx, req)
	case seen.stale:
		return reconcile.Result{RequeueAfter: staleRecheck}, nil
	case !seen.managed():
		r.forget(req.UID)
		return reconcile.Result{}, nil
	}

	decision := lifecycle.Decide(seen.input)
	r.refuseSkip(seen, decision)
	if refused := seen.refused(decision); refused.reason != "" {
		return r.refuse(ctx, seen, decision, refused)
	}

	moved, err := r.prepare(ctx, seen, decision)
	if moved || err != nil {
		return r.unwritten(seen, decision, err)
	}
	decision = lifecycle.Decide(seen.input)

	progress := r.converge(ctx, seen, decision)
	moved, err = r.conclude(ctx, seen, decision, &progress)
	if moved || err != nil {
		return r.unwritten(seen, decision, err)
	}
	moved, err = r.leave(ctx, seen, &progress)
	if moved || err != nil {
		return r.unwritten(seen, decision, err)
	}
	return r.report(seen, lifecycle.Decide(seen.input), progress.wait.and(progress.behind)), nil
}

// prepare writes what does not wait for the registry: what is armed, and what a person lets go.
func (r *PodReconciler) prepare(ctx context.Context, seen *observation, d lifecycle.Decision) (moved bool, err error) {
	if moved, err = r.patch(ctx, seen, d.Arm, nil); moved || err != nil {
		return moved, err
	}
	return r.skip(ctx, seen, lifecycle.Decide(seen.input))
}

// conclude writes what follows once the registry has acknowledged, or what the failure policy releases without it.
func (r *PodReconciler) conclude(
	ctx context.Context, seen *observation, d lifecycle.Decision, p *progress,
) (moved bool, err error) {
	edit, proceeds := d.Then, false
	if !p.released() && !p.rehearsed() {
		edit = r.proceed(seen, d, &p.wait)
		proceeds = !edit.Empty()
		if !proceeds && seen.askedOut() {
			edit = d.Out
		}
	}
	before := seen.pod()
	if moved, err = r.patch(ctx, seen, edit, p.record); moved || err != nil {
		return moved, err
	}
	if proceeds && seen.pod() != before { // a dry run has told what it would do
		r.proceeded(seen, d, p.wait)
	}
	return false, nil
}

// refuse leaves a pod as it is that Rollcall does not drive, but for handlers that no workload names any more.
func (r *PodReconciler) refuse(
	ctx context.Context, seen *observation, d lifecycle.Decision, why wait,
) (reconcile.Result, error) {
	moved, err := r.patch(ctx, seen, lifecycle.Edit{Clear: d.Then.Clear}, nil)
	if moved || err != nil {
		return r.unwritten(seen, d, err)
	}
	return r.report(seen, d, why), nil
}

// unwritten says when to come back for a pod that was not written to. Without an error it has moved on: its change is on the
// way to the cache and will bring us back by itself; the delay is for the case that it does not.
func (r *PodReconciler) unwritten(seen *observation, d lifecycle.Decision, err error) (reconcile.Result, error) {
	if err != nil && !isRefused(err) {
		return reconcile.Result{}, err
	}
	again := r.backoff.When(seen.pod().UID)
	if err == nil {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return r.report(seen, d, wait{reason: ReasonPatchRefused, after: again, message: registry.Excerpt(err.Error())}), nil
}

func (r *PodReconciler) forget(uid types.UID) {
	r.ledger.close(uid, r.clock.Now())
	r.claims.forget(uid, r.clock.Now())
	r.backoff.Forget(uid)
}
