// Package controller is the pod reconciler. Events enqueue pods (events.go); each goes through packages observe, visit and report.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
	"github.com/rollcall-dev/rollcall/internal/report"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets;daemonsets;statefulsets,verbs=get;list;watch

// backoffBase doubles with each failure of a pod, up to [waiting.Longest].
const backoffBase = 100 * time.Millisecond

// Options of a PodReconciler.
type Options struct {
	// Client and Pods read from the cache.
	Client client.Client
	Pods   clusterstate.Pods
	// APIReader tells an object that is gone from one that the cache lacks.
	APIReader client.Reader
	Recorder  events.EventRecorder
	Tracker   *tracker.Tracker
	State     *clusterstate.State
	// Identity is what entries are tagged with.
	Identity *clusterstate.Identity
	Releases *metrics.ReleaseMetrics
	// WithoutNodes: the cache has none.
	WithoutNodes bool
	// PodCondition reports whether to write [lifecycle.ConditionInRotation], which needs the right to patch pods/status.
	PodCondition func() bool
	// NoCondition returns why the condition can't be written, if a right is missing.
	NoCondition func() string
	Workers     int
	Clock       clock.PassiveClock
	// Ahead is how far the clock can be ahead of the last leader's.
	Ahead func() time.Duration
	// Listed closes, within a minute, when registries were listed or took too long. Pods wait: what is listed costs no call.
	Listed <-chan struct{}
	// Asker asks draining pods whether they are idle.
	Asker   visit.Asker
	History history.Log
	// Trace can be nil.
	Trace func(reconcile.TypedReconciler[lifecycle.PodID]) reconcile.TypedReconciler[lifecycle.PodID]
}

// PodReconciler keeps registries in step with pods.
type PodReconciler struct {
	enqueuer

	applied  chan struct{}
	queue    atomic.Pointer[podqueue.Queue]
	memory   *memory.Pods
	backoff  workqueue.TypedRateLimiter[types.UID]
	observer *observe.Observer
	visitor  *visit.Visitor
	reporter *report.Reporter
}

// New returns a PodReconciler. Call Apply before SetupWithManager.
func New(o Options) *PodReconciler {
	r := &PodReconciler{
		enqueuer: enqueuer{Options: o},
		applied:  make(chan struct{}, 1),
		memory:   memory.New(),
		backoff:  workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](backoffBase, waiting.Longest),
	}
	r.furnish()
	return r
}

func (r *PodReconciler) furnish() {
	o := &r.Options
	r.observer = &observe.Observer{
		Client: o.Client, Pods: o.Pods, APIReader: o.APIReader, Tracker: o.Tracker, State: o.State, Memory: r.memory, Identity: o.Identity,
		Clock: o.Clock,
	}
	r.reporter = &report.Reporter{
		Memory: r.memory, Recorder: o.Recorder, Clock: o.Clock, Calm: r.backoff.Forget, Common: report.CommonEvents(o.Clock),
		Rollouts: report.CommonEvents(o.Clock),
	}
	r.visitor = &visit.Visitor{
		Client: o.Client, State: o.State, Releases: o.Releases, PodCondition: o.PodCondition, NoCondition: o.NoCondition,
		Clock: o.Clock, Ahead: o.Ahead, History: o.History,
		BackOff: r.backoff.When, Tell: r.reporter.Tell, Asker: o.Asker, Wake: r.wake,
	}
}

// Apply puts settings in force and reconciles every pod. It can be called anytime.
func (r *PodReconciler) Apply(s observe.Settings) {
	if before := r.settings.Load(); before != nil {
		for name := range s.Registries {
			if !before.Has(name) {
				r.Tracker.Returned(name)
			}
		}
	}
	r.settings.Store(s.Completed())
	r.Again()
}

// Again reconciles every pod.
func (r *PodReconciler) Again() {
	select {
	case r.applied <- struct{}{}:
	default: // they will be
	}
}

// Wake reconciles one pod, if the controller runs.
func (r *PodReconciler) Wake(id lifecycle.PodID) {
	if q := r.queue.Load(); q != nil {
		podqueue.Wake(*q, id, true)
	}
}

// SetupWithManager can run after the manager's start, once OpenKruise's CRDs exist.
func (r *PodReconciler) SetupWithManager(mgr ctrl.Manager) error {
	options := controller.TypedOptions[lifecycle.PodID]{
		Reconciler:              r,
		MaxConcurrentReconciles: r.Workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[lifecycle.PodID](backoffBase, waiting.Longest),
	}
	if r.Trace != nil {
		options.Reconciler = r.Trace(r)
	}
	options.DefaultFromConfig(mgr.GetControllerOptions())
	c, err := controller.NewTypedUnmanaged("pod", options)
	if err != nil {
		return fmt.Errorf("making the pod controller: %w", err)
	}
	sources := []source.TypedSource[lifecycle.PodID]{
		source.TypedKind[client.Object](mgr.GetCache(), &corev1.Pod{}, r.podEvents()),
		source.TypedKind(mgr.GetCache(), clusterstate.NamespaceMetadata(), r.namespaceEvents()),
		podqueue.Signalled(r.applied, r.enqueueAll),
		podqueue.Signalled(r.Tracker.Signal, r.enqueueDoubted),
		podqueue.Signalled(r.State.Panics.Signal(), r.enqueueCalmed),
		podqueue.Signalled(r.State.Panics.Revisions.Signal(), r.enqueueShares),
		source.TypedFunc[lifecycle.PodID](r.started),
		podqueue.Await(r.Listed),
	}
	if !r.WithoutNodes {
		sources = append(sources, source.TypedKind(mgr.GetCache(), &corev1.Node{}, r.nodeEvents()))
	}
	for _, kind := range clusterstate.Kinds() {
		sources = append(sources, source.TypedKind(mgr.GetCache(), clusterstate.NewObject(kind), r.workloadEvents()))
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watching for the pod controller: %w", err)
		}
	}
	// Last: a manager that leads starts it, and later sources would hold nothing back.
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("adding the pod controller: %w", err)
	}
	return nil
}

func (r *PodReconciler) started(_ context.Context, q podqueue.Queue) error {
	r.queue.Store(&q)
	return nil
}

func (r *PodReconciler) wake(id lifecycle.PodID, urgent bool) {
	podqueue.Wake(*r.queue.Load(), id, urgent)
}

// Reconcile brings registries in step with a pod, even one that is gone, then lets OpenKruise continue. It can be repeated or die halfway:
// each step starts from the present state.
func (r *PodReconciler) Reconcile(ctx context.Context, id lifecycle.PodID) (reconcile.Result, error) {
	look, err := r.observer.Look(ctx, id, r.settings.Load())
	switch {
	case err != nil:
		return r.unread(ctx, look.Facts, err)
	case look.Forget:
		r.forget(id.UID)
		return reconcile.Result{}, nil
	case look.Facts == nil:
		return reconcile.Result{RequeueAfter: look.Again}, nil
	case look.Behind.Reason != "":
		return r.undecided(ctx, look.Facts, look.Behind)
	}
	return r.visit(ctx, look.Facts)
}

// unread shows what can't be read, unless that is likely to pass.
func (r *PodReconciler) unread(ctx context.Context, f *observe.Facts, err error) (reconcile.Result, error) {
	if f.Memory.FailsFor(err, r.Clock.Now()) < waiting.RolloutPatience || !f.MayBeHeld() {
		return reconcile.Result{}, err
	}
	return r.undecided(ctx, f, waiting.ReadFailed(err, apierrors.IsForbidden(err)))
}

// undecided shows why nothing is decided about the pod.
func (r *PodReconciler) undecided(ctx context.Context, f *observe.Facts, why waiting.Blocker) (reconcile.Result, error) {
	result := visit.Result{Input: f.Input, Decision: visit.Decide(f, f.Input), Held: []waiting.Blocker{why}}
	return reconcile.Result{RequeueAfter: r.reporter.Report(ctx, f, result)}, nil
}

func (r *PodReconciler) visit(ctx context.Context, f *observe.Facts) (reconcile.Result, error) {
	result, err := r.visitor.Visit(ctx, f)
	failing := f.Memory.FailsFor(err, r.Clock.Now())
	switch {
	case errors.Is(err, visit.ErrMoved) && failing < waiting.RolloutPatience:
		// Its event should bring the pod back; the delay is in case it does not.
		return reconcile.Result{RequeueAfter: result.BackOff()}, nil
	case err != nil:
		refused := waiting.PatchRefused(err, result.BackOff())
		if !lifecycle.IsRefused(err) && failing < waiting.RolloutPatience {
			return reconcile.Result{}, err // likely passes by itself
		}
		result.Held = slices.Insert(result.Held, 0, refused)
	case f.Uncached && result.Done():
		r.forget(result.Input.Pod.UID)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: r.reporter.Report(ctx, f, result)}, nil
}

func (r *PodReconciler) forget(uid types.UID) {
	now := r.Clock.Now()
	r.Tracker.Close(uid, now)
	r.State.Claims.Forget(uid, now)
	r.memory.Forget(uid)
	r.backoff.Forget(uid)
}

// Waits returns every pod that waits.
func (r *PodReconciler) Waits() []metrics.Wait { return r.memory.Waits() }

// Circumstances are those under which it was last decided about each pod, without pods that have none.
func (r *PodReconciler) Circumstances() map[lifecycle.PodID]lifecycle.Circumstances {
	return r.memory.Circumstances()
}

// NameRefused is [clusterstate.State.NameRefused] with the settings in force.
func (r *PodReconciler) NameRefused(ctx context.Context, w *clusterstate.Workload) (*clusterstate.Refusal, error) {
	settings := r.settings.Load()
	return r.State.NameRefused(ctx, &settings.Rules, settings.Everywhere(), settings.SourcesOf, w, r.Clock.Now())
}
