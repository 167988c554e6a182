package enroll

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// Label is for namespaces whose CloneSets the [Reconciler] enrolls, with the value "true". A CloneSet that has it with the value
// "false" is left out, and one with the value "true" is enrolled although somebody else writes it as a whole.
const Label = clusterstate.EnrollLabel

// controllerOwner is the field manager of what the Reconciler writes, and so what it may take back.
const controllerOwner client.FieldOwner = clusterstate.EnrollOwner

// workers is how many CloneSets are enrolled at the same time. Each write makes OpenKruise check all pods of the CloneSet.
const workers = 2

const (
	// writeBurst are the writes of the hooks that a CloneSet gets in a row, and writePause is between two after that.
	writeBurst = 10
	writePause = time.Minute
	// mostPaced bounds the memory.
	mostPaced = 1000
)

// recheck is when a name of another namespace may be free, which no event of the CloneSet shows.
const recheck = time.Minute

// Reconciler enrolls the CloneSets of namespaces that have the [Label], and withdraws those that it enrolled where the label is gone.
type Reconciler struct {
	client   client.Client
	recorder events.EventRecorder
	names    Names
	scope    *clusterstate.Scope

	config atomic.Pointer[config.Config]
	// changed has an event once the configuration was changed, of which it depends whether a CloneSet can be enrolled.
	changed chan event.GenericEvent
	// paces has a [rate.Limiter] for each CloneSet that was written, by its UID.
	paces *lru.Cache
}

// Names returns why pods of a workload may not have one of its service names; nil where they may have all.
type Names func(context.Context, *clusterstate.Workload) (*clusterstate.Refusal, error)

// New returns a Reconciler. The client reads CloneSets and namespaces from the cache, and writes to the API server.
func New(c client.Client, recorder events.EventRecorder, names Names, scope *clusterstate.Scope) *Reconciler {
	return &Reconciler{
		client: c, recorder: recorder, names: names, scope: scope, changed: make(chan event.GenericEvent, 1), paces: lru.New(mostPaced),
	}
}

// Apply sets the configuration to enroll by, and makes all CloneSets be checked again. Call it before the manager starts.
func (r *Reconciler) Apply(c *config.Config) {
	r.config.Store(c)
	select {
	case r.changed <- event.GenericEvent{Object: &corev1.Namespace{}}: // all of them
	default: // one is waiting already
	}
}

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(m ctrl.Manager) error {
	// A CloneSet's status changes all the time, and means nothing here.
	written := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(m).Named("enroll").
		For(&kruisev1alpha1.CloneSet{}, builder.WithPredicates(written)).
		Watches(clusterstate.NamespaceMetadata(), handler.EnqueueRequestsFromMapFunc(r.inNamespace),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(source.Channel(r.changed, handler.EnqueueRequestsFromMapFunc(r.inNamespace))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the controller: %w", err)
	}
	return nil
}

// inNamespace returns all CloneSets of a namespace, and of all namespaces where it has no name. The cache has those of the namespaces
// that the manager watches, and gives an error for any other.
func (r *Reconciler) inNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	if name := namespace.GetName(); name != "" && !r.scope.Watches(name) {
		return nil
	}
	var list kruisev1alpha1.CloneSetList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "failed to list the CloneSets of a namespace", "namespace", namespace.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.scope.Watches(request.Namespace) {
		return reconcile.Result{}, nil // the hooks that it has are left alone
	}
	set := &kruisev1alpha1.CloneSet{}
	if err := r.client.Get(ctx, request.NamespacedName, set); err != nil || set.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	namespace, err := r.labelsOf(ctx, set.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	enrolled := Owned(set, controllerOwner)
	switch wanted := Asked(set.Labels, namespace); {
	case wanted && enrolled:
		return r.restore(ctx, set)
	case wanted:
		return r.enroll(ctx, set, namespace)
	case enrolled:
		return r.written(set, "remove", Withdraw(ctx, r.client, set, controllerOwner))
	}
	return reconcile.Result{}, nil
}

// written shows what the API server has refused: another manager of a field, or a policy, which a person has to change. It is tried
// again, later and later.
func (r *Reconciler) written(set *kruisev1alpha1.CloneSet, what string, err error) (reconcile.Result, error) {
	if lifecycle.IsRefused(err) && !apierrors.IsNotFound(err) {
		r.warn(set, fmt.Sprintf("the API server refused to let Rollcall %s the hooks: %v", what, err))
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// restore gives an enrolled CloneSet the hooks back that it lacks, even if its name would be refused now: its pods are in the registry,
// and need them.
func (r *Reconciler) restore(ctx context.Context, set *kruisev1alpha1.CloneSet) (reconcile.Result, error) {
	if lifecycle.IsEnrolled(set.Spec.Lifecycle) {
		return reconcile.Result{}, nil
	}
	if why := others(set, r.config.Load()); why != "" {
		return r.warn(set, why), nil
	}
	return r.give(ctx, set)
}

// give writes the hooks. Whoever takes them away may do so after each write, as Karmada does, and each makes OpenKruise check all pods.
func (r *Reconciler) give(ctx context.Context, set *kruisev1alpha1.CloneSet) (reconcile.Result, error) {
	known, _ := r.paces.Get(set.UID)
	pace, is := known.(*rate.Limiter)
	if !is {
		pace = rate.NewLimiter(rate.Every(writePause), writeBurst)
		r.paces.Add(set.UID, pace)
	}
	turn := pace.Reserve()
	if wait := turn.Delay(); wait > 0 {
		turn.Cancel()
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return r.written(set, "add", Enroll(ctx, r.client, set, controllerOwner))
}

func (r *Reconciler) labelsOf(ctx context.Context, name string) (labels.Set, error) {
	namespace := clusterstate.NamespaceMetadata()
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return namespace.Labels, nil
}

func (r *Reconciler) enroll(ctx context.Context, set *kruisev1alpha1.CloneSet, of labels.Set) (reconcile.Result, error) {
	if Managed(set, r.config.Load()) {
		return reconcile.Result{}, nil
	}
	if why := Obstacle(set, r.config.Load(), of); why != "" {
		return r.warn(set, why), nil
	}
	refused, err := r.names(ctx, clusterstate.AsWorkload(set))
	if err != nil {
		return reconcile.Result{}, err
	}
	if refused != nil {
		if !refused.Calm {
			r.warn(set, refused.Message)
		}
		return reconcile.Result{RequeueAfter: cmp.Or(refused.After, recheck)}, nil
	}
	return r.give(ctx, set)
}

// warn makes an Event, and returns when it is to come again.
func (r *Reconciler) warn(set *kruisev1alpha1.CloneSet, why string) reconcile.Result {
	r.recorder.Eventf(set, nil, reason.NotEnrolled.Event(), string(reason.NotEnrolled), "Enroll", "%s", why)
	return reconcile.Result{RequeueAfter: reason.EventRepeat}
}
