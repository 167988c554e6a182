package controller

import (
	"context"
	"errors"
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

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
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
	Tracker   *tracker.Tracker
	State     *clusterstate.State
	// Releases measures the hooks that were released.
	Releases *metrics.ReleaseMetrics
	// Namespaces are those whose pods the cache has; none means all.
	Namespaces []string
	// Workers is how many pods are worked on at once.
	Workers int
	Clock   clock.PassiveClock
	// Ahead returns how much later, at most, the clock reads than that of the manager which led before. Nil is for one that
	// has the same clock.
	Ahead func() time.Duration
	// Listed is closed once every registry was asked what there is, or took too long: no pod is worked on before, since
	// what is listed costs no call. It must be closed within a minute. Nil waits for nothing.
	Listed <-chan struct{}
}

// PodReconciler keeps the registry in step with the life of pods.
type PodReconciler struct {
	Options

	settings atomic.Pointer[Settings]
	applied  chan struct{}
	woken    *wakeups
	notes    notes
	backoff  workqueue.TypedRateLimiter[types.UID]
}

// New returns a PodReconciler. Apply must be called before it is set up.
func New(o Options) *PodReconciler {
	return &PodReconciler{
		Options: o,
		applied: make(chan struct{}, 1),
		woken:   newWakeups(),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](backoffBase, backoffCap),
	}
}

// Apply puts the settings in force, whole, and has every pod looked at again at once. It may be called at any time.
func (r *PodReconciler) Apply(s Settings) {
	s.everywhere = s.places()
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
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, addressIndex, addressOf); err != nil {
		return fmt.Errorf("indexing pods by address: %w", err)
	}
	if _, err := mgr.GetCache().GetInformer(ctx, clusterstate.NodeMetadata()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	options := controller.TypedOptions[lifecycle.PodID]{
		Reconciler:              r,
		MaxConcurrentReconciles: r.Workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[lifecycle.PodID](backoffBase, backoffCap),
	}
	options.DefaultFromConfig(mgr.GetControllerOptions())
	c, err := controller.NewTypedUnmanaged("pod", options)
	if err != nil {
		return fmt.Errorf("making the pod controller: %w", err)
	}
	for _, s := range []source.TypedSource[lifecycle.PodID]{
		source.TypedKind(mgr.GetCache(), &corev1.Pod{}, r.podEvents()),
		source.TypedKind(mgr.GetCache(), &kruisev1alpha1.CloneSet{}, r.workloadEvents()),
		source.TypedKind(mgr.GetCache(), clusterstate.NamespaceMetadata(), r.namespaceEvents()),
		signalled{r.applied, r.enqueueAll},
		signalled{r.Tracker.Signal(), r.enqueueDoubted},
		signalled{r.State.Panics.Signal(), r.enqueueCalmed},
		signalled{r.woken.signal, r.enqueueWoken},
		awaited{r.Listed},
	} {
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

	decision := seen.decide()
	r.refuseSkip(seen, decision)
	if refused := seen.refused(decision); refused.reason != "" {
		return r.refuse(ctx, seen, decision, refused)
	}
	if err := r.arm(ctx, seen, decision); err != nil {
		return r.unwritten(seen, decision, err)
	}
	decision = seen.decide()

	progress := r.converge(ctx, seen, decision)
	if err := r.conclude(ctx, seen, decision, &progress); err != nil {
		return r.unwritten(seen, decision, err)
	}
	if err := r.leave(ctx, seen, &progress); err != nil {
		return r.unwritten(seen, decision, err)
	}
	if seen.departed && progress.done() {
		r.forget(id.UID)
		return reconcile.Result{}, nil
	}
	return r.report(seen, seen.decide(), progress.blocker.and(progress.behind)), nil
}

// arm writes what does not wait for a registry. An annotation to skip a hook that came with the template is taken off too.
func (r *PodReconciler) arm(ctx context.Context, seen *observation, d lifecycle.Decision) error {
	edit := d.Arm
	edit.ClearSkip = seen.skip.FromTemplate && seen.pod().DeletionTimestamp == nil
	return r.patch(ctx, seen, edit, nil)
}

// conclude writes what follows once the registries have acknowledged, or what is released without that.
func (r *PodReconciler) conclude(ctx context.Context, seen *observation, d lifecycle.Decision, p *progress) error {
	edit, release := d.Then, (*release)(nil)
	if !p.done() {
		if edit, release = r.release(seen, d, &p.blocker); release == nil && seen.mayBeOut() {
			edit = d.Out
		}
	}
	edit.ClearSkip = seen.skips(d) && (release != nil || p.done())
	before := seen.pod()
	if seen.departed {
		p.record = nil // it goes with the pod
	}
	if err := r.patch(ctx, seen, edit, p.record); err != nil {
		return err
	}
	if seen.pod() == before { // nothing to write, or a dry run, which has reported what it would do
		return nil
	}
	if release != nil {
		r.released(seen, d, release)
	}
	r.waited(seen, d)
	return nil
}

// refuse leaves a pod as it is that Rollcall does not drive, but for handlers that no workload names any more.
func (r *PodReconciler) refuse(
	ctx context.Context, seen *observation, d lifecycle.Decision, why blocker,
) (reconcile.Result, error) {
	if err := r.patch(ctx, seen, lifecycle.Edit{Clear: d.Then.Clear}, nil); err != nil {
		return r.unwritten(seen, d, err)
	}
	return r.report(seen, d, why), nil
}

// unwritten says when to come back for a pod that was not written to. Where it has moved on, its change is on the way to the
// cache and will bring it back by itself; the delay is for the case that it does not.
func (r *PodReconciler) unwritten(seen *observation, d lifecycle.Decision, err error) (reconcile.Result, error) {
	moved := errors.Is(err, errMoved)
	if !moved && !isRefused(err) {
		return reconcile.Result{}, err
	}
	again := r.backoff.When(seen.pod().UID)
	if moved {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return r.report(seen, d, blocker{reason: reason.PatchRefused, after: again, message: registry.Excerpt(err.Error())}), nil
}

func (r *PodReconciler) forget(uid types.UID) {
	now := r.Clock.Now()
	r.Tracker.Close(uid, now)
	r.State.Claims.Forget(uid, now)
	r.notes.forget(uid)
	r.backoff.Forget(uid)
}
