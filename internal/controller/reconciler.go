// Package controller holds the pod reconciler: it has pods looked at when something may have changed for them (events.go), and takes each
// through three rooms. Package observe gathers what a visit rests on, package visit takes the pod as far as it can go, and package
// report tells people why it waits.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

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

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/report"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets;daemonsets;statefulsets,verbs=get;list;watch

// backoffBase is how soon, at the least, a pod is looked at again that fails; it doubles each time, up to [waiting.Longest].
const backoffBase = 100 * time.Millisecond

// Options are what a PodReconciler works with.
type Options struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server, where a cache that lags could be mistaken for an object that is gone.
	APIReader client.Reader
	Recorder  events.EventRecorder
	Tracker   *tracker.Tracker
	State     *clusterstate.State
	// Identity is what each entry is marked with, besides the cluster's name.
	Identity *clusterstate.Identity
	// Releases measures the hooks that were released.
	Releases *metrics.ReleaseMetrics
	// Namespaces are those whose pods the cache has; none means all.
	Namespaces []string
	// PodCondition has each pod carry [lifecycle.ConditionInRotation]. It needs the right to patch pods/status.
	PodCondition bool
	// Workers is how many pods are worked on at once.
	Workers int
	Clock   clock.PassiveClock
	// Ahead returns how much later, at most, the clock reads than that of the manager which led before.
	Ahead func() time.Duration
	// Listed is closed once every registry was asked what there is, or took too long: no pod is worked on before, since
	// what is listed costs no call. It must be closed within a minute.
	Listed <-chan struct{}
	// Audit writes down what receipts are made from. Nil is for no receipts.
	Audit *audit.Log
	// Trace gives each reconcile a span. Nil is for no traces.
	Trace func(reconcile.TypedReconciler[lifecycle.PodID]) reconcile.TypedReconciler[lifecycle.PodID]
}

// PodReconciler keeps the registry in step with the life of pods.
type PodReconciler struct {
	Options

	settings atomic.Pointer[observe.Settings]
	applied  chan struct{}
	queue    atomic.Pointer[podqueue.Queue]
	memory   *memory.Pods
	backoff  workqueue.TypedRateLimiter[types.UID]
	observer *observe.Observer
	visitor  *visit.Visitor
	reporter *report.Reporter
}

// New returns a PodReconciler. Apply must be called before it is set up.
func New(o Options) *PodReconciler {
	r := &PodReconciler{
		Options: o,
		applied: make(chan struct{}, 1),
		memory:  memory.New(),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](backoffBase, waiting.Longest),
	}
	r.furnish()
	return r
}

// furnish makes the rooms that a pod goes through.
func (r *PodReconciler) furnish() {
	o := &r.Options
	r.observer = &observe.Observer{
		Client: o.Client, APIReader: o.APIReader, Tracker: o.Tracker, State: o.State, Memory: r.memory, Identity: o.Identity, Audit: o.Audit,
		Clock: o.Clock,
	}
	r.reporter = &report.Reporter{Memory: r.memory, Recorder: o.Recorder, Audit: o.Audit, Clock: o.Clock, Calm: r.backoff.Forget}
	r.visitor = &visit.Visitor{
		Client: o.Client, State: o.State, Releases: o.Releases, PodCondition: o.PodCondition, Clock: o.Clock, Ahead: o.Ahead, Audit: o.Audit,
		BackOff: r.backoff.When, Tell: r.reporter.Tell, Wake: r.wake,
	}
}

// Apply puts the settings in force, whole, and has every pod looked at again at once. It may be called at any time.
func (r *PodReconciler) Apply(s observe.Settings) {
	if before := r.settings.Load(); before != nil {
		for name := range s.Registries {
			if !before.Has(name) {
				r.Tracker.Returned(name)
			}
		}
	}
	r.settings.Store(s.Completed())
	select {
	case r.applied <- struct{}{}:
	default: // the pods will be looked at already, with these settings
	}
}

// SetupWithManager adds the controller to the manager, which may have been started. OpenKruise's CRDs must be there.
func (r *PodReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	for index, of := range clusterstate.PodIndexes() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, index, of); err != nil {
			return fmt.Errorf("indexing pods by %s: %w", index, err)
		}
	}
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
		source.TypedKind(mgr.GetCache(), &corev1.Pod{}, r.podEvents()),
		source.TypedKind(mgr.GetCache(), clusterstate.NamespaceMetadata(), r.namespaceEvents()),
		source.TypedKind(mgr.GetCache(), &corev1.Node{}, r.nodeEvents()),
		podqueue.Signalled(r.applied, r.enqueueAll),
		podqueue.Signalled(r.Tracker.Signal(), r.enqueueDoubted),
		podqueue.Signalled(r.State.Panics.Signal(), r.enqueueCalmed),
		source.TypedFunc[lifecycle.PodID](r.started),
		podqueue.Await(r.Listed),
	}
	for _, kind := range clusterstate.Kinds() {
		sources = append(sources, source.TypedKind(mgr.GetCache(), clusterstate.NewObject(kind), r.workloadEvents()))
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watching for the pod controller: %w", err)
		}
	}
	// A manager that leads already starts the controller at once, and what it watches from then on would hold nothing back.
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("adding the pod controller: %w", err)
	}
	return nil
}

// Reconcile makes the registries say what they must of one pod, and lets OpenKruise go on once they have acknowledged. It may
// be repeated, die half-way, or meet a pod that has moved on; every step starts from the present state. What a pod left behind
// that is gone is undone in the same steps.
func (r *PodReconciler) Reconcile(ctx context.Context, id lifecycle.PodID) (reconcile.Result, error) {
	look, err := r.observer.Look(ctx, id, r.settings.Load())
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case look.Forget:
		r.forget(id.UID)
		return reconcile.Result{}, nil
	case look.Facts == nil:
		return reconcile.Result{RequeueAfter: look.Again}, nil
	case look.Behind.Reason != "":
		in := look.Facts.Input
		result := visit.Result{Input: in, Decision: visit.Decide(look.Facts, in), Held: []waiting.Blocker{look.Behind}}
		return reconcile.Result{RequeueAfter: r.reporter.Report(ctx, look.Facts, result)}, nil
	}
	return r.visit(ctx, look.Facts)
}

func (r *PodReconciler) visit(ctx context.Context, f *observe.Facts) (reconcile.Result, error) {
	result, err := r.visitor.Visit(ctx, f)
	failing := f.Memory.FailsFor(err, r.Clock.Now())
	switch {
	case errors.Is(err, visit.ErrMoved) && failing < waiting.RolloutPatience:
		// Its change is on the way to the cache and will bring it back by itself; the delay is for the case that it does not.
		return reconcile.Result{RequeueAfter: result.BackOff()}, nil
	case err != nil:
		refused := waiting.Blocker{Reason: reason.PatchRefused, After: result.BackOff(), Message: registry.Excerpt(err.Error())}
		if !lifecycle.IsRefused(err) && failing < waiting.RolloutPatience {
			return reconcile.Result{}, err // which most likely passes by itself
		}
		result.Held = slices.Insert(result.Held, 0, refused)
	case f.Departed && result.Done():
		r.forget(result.Input.Pod.UID)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: r.reporter.Report(ctx, f, result)}, nil
}

func (r *PodReconciler) forget(uid types.UID) {
	now := r.Clock.Now()
	r.Tracker.Close(uid, now)
	r.State.Claims.Forget(uid, now)
	observe.AuditGone(r.Audit, r.memory.Forget(uid))
	r.backoff.Forget(uid)
}

// Waits returns every pod that waits.
func (r *PodReconciler) Waits() []metrics.Wait { return r.memory.Waits() }

// NameRefused is [clusterstate.State.NameRefused] by the configuration in force.
func (r *PodReconciler) NameRefused(ctx context.Context, w *clusterstate.Workload) (*clusterstate.Refusal, error) {
	settings := r.settings.Load()
	return r.State.NameRefused(ctx, &settings.Rules, settings.Everywhere(), w, r.Clock.Now())
}
