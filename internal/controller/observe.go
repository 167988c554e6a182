package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// staleRecheck is for a cache that has not seen our own write yet: the event of that write brings us back sooner.
const staleRecheck = time.Second

// observation is all that one reconcile rests on.
type observation struct {
	settings *Settings
	page     *page
	input    lifecycle.Input

	// targets are those that the pod has now, as far as its description tells. A problem with it keeps the pod from being
	// put in service, and nothing else.
	targets []target
	problem wait
	// warning is what a person should look at although it keeps the pod from nothing.
	warning wait
	// keeps are the names, as [claimKey] has them, that the pod is registered under and may not use otherwise.
	keeps map[string]bool
	drain time.Duration
	// panic is the service of the pod of which too many pods are not ready at once; the zero value where none is.
	panic panicking
	// skip is what a person asks for.
	skip lifecycle.Skip
	// unsupported is the kind of a workload that Rollcall does not drive.
	unsupported string

	// gone: the cache has no such pod. stale: it has not seen our own last write. Nothing else is set then.
	gone  bool
	stale bool
}

func (o *observation) pod() *corev1.Pod { return o.input.Pod }

// managed reports whether Rollcall has anything to do with the pod. A call that was made has to be undone one day, also
// where the record of it got lost and the workload names us no more.
func (o *observation) managed() bool { return o.input.Managed() || len(o.page.calls) > 0 }

// observe gathers what the decision rests on.
func (r *PodReconciler) observe(ctx context.Context, req Request) (*observation, error) {
	settings := r.settings.Load()
	// Before the cache is read: the departure of a pod that is found in it then has a page to be noted on.
	page := r.ledger.open(req, settings)
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, req.NamespacedName, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != req.UID:
		return &observation{gone: true}, nil
	case err != nil:
		return nil, fmt.Errorf("reading the pod: %w", err)
	}

	page.found = true
	if behind(pod.ResourceVersion, page.written) {
		return &observation{stale: true}, nil
	}

	if err := r.workloads.refresh(ctx, settings, r.clock.Now()); err != nil {
		return nil, err
	}
	workload, err := r.workloadOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	hooks := lifecycle.HooksOf(asLifecycle(workload), settings.Ownership)
	seen := &observation{settings: settings, page: page, skip: lifecycle.SkipOf(pod, asLifecycle(workload))}
	seen.input = lifecycle.Input{Pod: pod, Hooks: hooks, Record: lifecycle.RecordOf(pod), Ownership: settings.Ownership}
	seen.input.Skips = seen.skip.Hooks
	if !seen.managed() {
		return seen, nil
	}
	seen.unsupported = unsupportedKind(pod)
	node, err := r.nodeOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	r.observeTargets(seen, node)
	seen.input.Blocked = seen.problem.reason != ""
	r.observePeers(seen)
	observeGuard(seen, workload != nil)
	r.recall(seen)
	r.confirm(seen)
	return seen, nil
}

// observeTargets says which instances the pod has in which registries, or what is wrong with how it is described.
func (r *PodReconciler) observeTargets(seen *observation, node service.Node) {
	pod, settings := seen.pod(), seen.settings
	drain, drainErr := service.DrainOf(pod.Annotations, settings.Drain)
	if drainErr != nil {
		drain = settings.Drain
	}
	seen.drain = drain

	subject := subjectOf(pod)
	subject.Node = node
	endpoints, err := settings.Services.EndpointsOf(subject)
	attributes, attributesErr := settings.Services.AttributesOf(subject)
	registries, registriesErr := service.RegistriesOf(pod.Annotations, settings.DefaultRegistries, settings.names())
	if registriesErr != nil && len(seen.known()) == 0 {
		registries = settings.names() // nothing tells which of them it is in
	}
	err = errors.Join(err, drainErr, attributesErr, registriesErr)
	refused := r.observeNames(seen, endpoints)
	if pod.Status.PodIP != "" && refused.reason == "" {
		seen.targets = targetsOf(settings.Cluster, pod, registries, endpoints, attributes)
	}
	switch {
	case err != nil:
		seen.problem = wait{reason: ReasonInvalidPod, message: err.Error()}
	case pod.Status.PodIP == "":
		seen.problem = wait{reason: ReasonNoAddress, message: "the pod has no IP yet"}
	case refused.reason != "":
		seen.problem = refused
	}
}

// observeNames says why the pod may not use one of its service names. A name that it is registered under stays its own, and
// only the warning is shown.
func (r *PodReconciler) observeNames(seen *observation, endpoints []service.Endpoint) wait {
	seen.keeps = map[string]bool{}
	for _, e := range endpoints {
		refused, registered := r.claims.ask(r.question(seen, e.Service))
		switch {
		case refused.reason == "":
		case !registered:
			return refused
		default:
			refused.message += "; the pod stays, since it is registered under that name already"
			seen.warning, seen.keeps[claimKey(e.Service)] = refused, true
		}
	}
	return wait{}
}

// claim takes the name for the pod's namespace before a Register, which may be carried out until lands, or says why the pod
// may not use the name.
func (r *PodReconciler) claim(seen *observation, s step, lands time.Time) wait {
	if s.want != lifecycle.InService {
		return wait{}
	}
	return r.claims.take(r.question(seen, s.instance.Service), s.key(), lands)
}

func (r *PodReconciler) question(seen *observation, name string) question {
	pod := seen.pod()
	return question{
		settings: seen.settings, uid: pod.UID, namespace: pod.Namespace, service: name,
		keeps: seen.keeps[claimKey(name)], now: r.clock.Now(),
	}
}

// refused says why Rollcall does not drive the pod; empty where it does.
func (o *observation) refused(d lifecycle.Decision) wait {
	if o.unsupported == "" || d.Row == lifecycle.RowGone {
		return wait{}
	}
	return wait{reason: ReasonUnsupportedWorkload, message: fmt.Sprintf(
		"the pod has a finalizer or mark that hooks.owned or hooks.newlyCreated claims, and belongs to a %s; Rollcall drives only "+
			"CloneSets: take it out of the template, or the key out of the configuration", o.unsupported)}
}

// known are the instances that this process made calls for, or that the record names.
func (o *observation) known() map[lifecycle.Recorded]bool {
	known := map[lifecycle.Recorded]bool{}
	for in := range o.page.calls {
		known[o.underItsName(in)] = true
	}
	for _, in := range o.input.Record.Instances {
		known[o.underItsName(in)] = true
	}
	return known
}

// underItsName returns the instance under the name that the configuration has for the registry by now.
func (o *observation) underItsName(in lifecycle.Recorded) lifecycle.Recorded {
	if _, has := o.settings.Registries[in.Registry]; has {
		return in
	}
	for _, names := range []map[string]string{o.settings.Renamed, o.page.renamed} {
		if now, renamed := names[in.Registry]; renamed {
			in.Registry = now
			break
		}
	}
	return in
}

// workloadOf returns the CloneSet that owns the pod, or nil. The cache may not have seen a new one yet, and a workload
// that is taken for gone has its handlers released, so the API server is asked before that. Nothing hangs on it for a pod
// that is being deleted, and there may be many at once.
func (r *PodReconciler) workloadOf(ctx context.Context, pod *corev1.Pod) (*kruisev1alpha1.CloneSet, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || !isKruise(owner) || owner.Kind != "CloneSet" {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
	readers := []client.Reader{r.client, r.apiReader}
	if pod.DeletionTimestamp != nil {
		readers = readers[:1]
	}
	for _, reader := range readers {
		workload := &kruisev1alpha1.CloneSet{}
		err := reader.Get(ctx, key, workload)
		if err == nil && workload.UID == owner.UID {
			return workload, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading CloneSet %s: %w", key, err)
		}
	}
	return nil, nil
}

func isKruise(owner *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == kruisev1alpha1.GroupVersion.Group
}

// unsupportedKind names the kind of the pod's workload where that is no CloneSet.
func unsupportedKind(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind == "CloneSet" && isKruise(owner) {
		return ""
	}
	return owner.Kind
}

func asLifecycle(workload *kruisev1alpha1.CloneSet) *lifecycle.Workload {
	if workload == nil {
		return nil
	}
	return &lifecycle.Workload{
		Lifecycle:           workload.Spec.Lifecycle,
		Selector:            workload.Spec.Selector,
		TemplateLabels:      workload.Spec.Template.Labels,
		TemplateAnnotations: workload.Spec.Template.Annotations,
	}
}

// subjectOf names the workload as the pod does, since it may be gone already.
func subjectOf(pod *corev1.Pod) service.Subject {
	subject := service.Subject{
		Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations, Spec: &pod.Spec,
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		subject.Workload = owner.Name
	}
	return subject
}

// behind reports whether a cached object is older than our own last write of it.
func behind(cached, written string) bool {
	if written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(cached, written)
	return err == nil && order < 0
}
