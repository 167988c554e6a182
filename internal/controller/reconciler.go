// Package controller holds the pod reconciler. Reconcile reads from top to bottom, and each of its steps has a file.
//
// observe.go gathers what a decision rests on, and instances.go what may be in which registry; lifecycle.Decide decides; plan.Of
// says which changes that takes, stages.go in which stages they are made, and converge.go makes them; release.go says what is
// released without the registry; patch.go lets OpenKruise go on; report.go tells people why a pod waits. apps.go has what differs
// for entries that applications write, and events.go has pods looked at. What this process knows of the registries is in package
// tracker.
package controller

import (
	"context"
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
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets;daemonsets;statefulsets,verbs=get;list;watch

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

	settings atomic.Pointer[Settings]
	applied  chan struct{}
	queue    atomic.Pointer[podqueue.Queue]
	notes    *notes.Notes
	backoff  workqueue.TypedRateLimiter[types.UID]
}

// New returns a PodReconciler. Apply must be called before it is set up.
func New(o Options) *PodReconciler {
	return &PodReconciler{
		Options: o,
		applied: make(chan struct{}, 1),
		notes:   notes.New(),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](backoffBase, backoffCap),
	}
}

// Apply puts the settings in force, whole, and has every pod looked at again at once. It may be called at any time.
func (r *PodReconciler) Apply(s Settings) {
	s.everywhere = s.allSources()
	r.settings.Store(&s)
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
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[lifecycle.PodID](backoffBase, backoffCap),
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
	seen, again, err := r.observe(ctx, id)
	if seen == nil || err != nil {
		return reconcile.Result{RequeueAfter: again}, err
	}
	v := &visit{observation: seen}
	err = r.advance(r.about(ctx, seen), v)
	failing := seen.note.FailsFor(err, r.Clock.Now())
	switch {
	case isMoved(err) && failing < rolloutPatience:
		// Its change is on the way to the cache and will bring it back by itself; the delay is for the case that it does not.
		return reconcile.Result{RequeueAfter: r.backOff(seen)}, nil
	case err != nil:
		refused := notes.Blocker{Reason: reason.PatchRefused, After: r.backOff(seen), Message: registry.Excerpt(err.Error())}
		if !lifecycle.IsRefused(err) && failing < rolloutPatience {
			return reconcile.Result{}, err // which most likely passes by itself
		}
		v.held = slices.Insert(v.held, 0, refused)
	case seen.departed && v.done():
		r.forget(id.UID)
		return reconcile.Result{}, nil
	}
	return r.report(ctx, seen, notes.First(slices.Concat(v.held, v.behind)...)), nil
}

// conclude writes what follows once the registries have acknowledged, or what is released without that.
func (r *PodReconciler) conclude(ctx context.Context, v *visit) error {
	before, d, done := v.pod(), v.decision, v.done()
	edit, release := d.Then, (*release)(nil)
	switch {
	case !done:
		missing := notes.First(v.held...)
		if edit, release = r.release(v, &missing); release == nil && v.tracked.Known().AskedOut() {
			edit = d.Out
		}
		v.held = []notes.Blocker{missing}
	case len(v.held) == 0 && d.Want == lifecycle.InService:
		v.record = v.newRecord(v.changes)
	}
	if v.excuse = ""; release != nil {
		v.excuse = release.by
	}
	edit.ClearSkip = v.skips() && (release != nil || done)
	if v.departed {
		v.record = nil // it goes with the pod
	}
	if err := r.patch(ctx, v.observation, edit, v.record); err != nil || v.pod() == before {
		return err // or there was nothing to write, or it is a dry run, which has reported what it would do
	}
	if release != nil {
		r.Releases.Count(string(d.Waiting), release.by)
		r.event(v.observation, release.reason, release.message)
	}
	r.waited(v.observation, d.Waiting)
	return nil
}

// waited measures how long OpenKruise has waited for a hook that it no longer waits for.
func (r *PodReconciler) waited(seen *observation, hook lifecycle.Hook) {
	since, err := lifecycle.MovedAt(seen.pod())
	if err == nil && hook != "" && seen.decision.Waiting == "" {
		r.Releases.Waited(string(hook), r.Clock.Now().Sub(since))
	}
}

func (r *PodReconciler) backOff(seen *observation) time.Duration {
	seen.tries.Do(func() { seen.after = r.backoff.When(seen.pod().UID) })
	return seen.after
}

func (r *PodReconciler) forget(uid types.UID) {
	now := r.Clock.Now()
	r.Tracker.Close(uid, now)
	r.State.Claims.Forget(uid, now)
	r.auditGone(r.notes.Forget(uid))
	r.backoff.Forget(uid)
}
