package clusterstate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// An Advanced DaemonSet has only the hook preDelete; its pods have no lifecycle state before that (OpenKruise's
// pkg/controller/daemonset).
const (
	KindCloneSet    = "CloneSet"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
)

// Kinds are those whose pods Rollcall drives.
func Kinds() []string { return []string{KindCloneSet, KindStatefulSet, KindDaemonSet} }

// AddToScheme adds the types of [Kinds].
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(kruisev1alpha1.AddToScheme(scheme), kruisev1beta1.AddToScheme(scheme))
}

// NewObject returns nil for a kind not in [Kinds].
func NewObject(kind string) client.Object {
	switch kind {
	case KindCloneSet:
		return &kruisev1alpha1.CloneSet{}
	case KindStatefulSet:
		return &kruisev1beta1.StatefulSet{}
	case KindDaemonSet:
		return &kruisev1alpha1.DaemonSet{}
	default:
		return nil
	}
}

// Workload is all that Rollcall reads of a workload. [AsWorkload] makes it, and [StripWorkload] keeps what that reads: a rule that needs
// more adds a field here. It shares memory with others, and must not be modified.
type Workload struct {
	*metav1.ObjectMeta

	Kind      string
	Lifecycle *appspub.Lifecycle
	Selector  *metav1.LabelSelector
	Template  Template
	// Ordered: OpenKruise takes the pods one after the other.
	Ordered bool
	// UpdatesInPlace: OpenKruise updates a DaemonSet's pods in place.
	UpdatesInPlace bool
	// Object is the workload as it was read, of which a cache has dropped much. It is for those who write it, and for the plugin, whose
	// workloads are whole.
	Object client.Object

	deletesSpecified bool
	// revisions is nil for all but CloneSets, of which toUpdate pods are to have the newer one.
	revisions *lifecycle.Revisions
	toUpdate  int
}

// RolloutOf returns the rollout of the workload as a pod of its newer revision has it, which may be nil, and false for other pods.
func (r *Revisions) RolloutOf(w *Workload, pod *lifecycle.Pod) (lifecycle.Rollout, bool) {
	if w == nil || w.revisions == nil || w.revisions.Update == "" || w.toUpdate == 0 {
		return lifecycle.Rollout{}, false
	}
	revision := lifecycle.ShortRevision(w.revisions.Update)
	if lifecycle.RevisionOf(pod) != revision {
		return lifecycle.Rollout{}, false
	}
	return lifecycle.Rollout{
		Workload: w.UID, Revision: revision, Rolling: w.revisions.Current != w.revisions.Update, In: r.In(w.UID, revision), ToUpdate: w.toUpdate,
	}, true
}

// Template is all that Rollcall reads of the pods' template.
type Template struct {
	Labels, Annotations map[string]string
	Finalizers          []string

	spec *corev1.PodSpec
}

// Spec is read as that of its pods.
func (t *Template) Spec() lifecycle.PodSpec { return lifecycle.PodSpecOf(t.spec) }

func (t *Template) equal(other *Template) bool {
	return maps.Equal(t.Labels, other.Labels) && maps.Equal(t.Annotations, other.Annotations) &&
		slices.Equal(t.Finalizers, other.Finalizers) && equality.Semantic.DeepEqual(t.Spec(), other.Spec())
}

// AsWorkload returns nil for an object not of [Kinds].
func AsWorkload(object client.Object) *Workload {
	w := &Workload{Object: object}
	switch o := object.(type) {
	case *kruisev1alpha1.CloneSet:
		w.Kind, w.ObjectMeta, w.Lifecycle, w.Selector = KindCloneSet, &o.ObjectMeta, o.Spec.Lifecycle, o.Spec.Selector
		w.Template, w.deletesSpecified = templateOf(&o.Spec.Template), true
		w.revisions = &lifecycle.Revisions{Current: o.Status.CurrentRevision, Update: o.Status.UpdateRevision}
		w.toUpdate = int(o.Status.ExpectedUpdatedReplicas)
	case *kruisev1beta1.StatefulSet:
		w.Kind, w.ObjectMeta, w.Lifecycle, w.Selector = KindStatefulSet, &o.ObjectMeta, o.Spec.Lifecycle, o.Spec.Selector
		w.Template, w.Ordered = templateOf(&o.Spec.Template), o.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
		strategy := &o.Spec.UpdateStrategy
		w.deletesSpecified = !w.Ordered && strategy.Type != appsv1.OnDeleteStatefulSetStrategyType &&
			(strategy.RollingUpdate == nil || !strategy.RollingUpdate.Paused)
	case *kruisev1alpha1.DaemonSet:
		w.Kind, w.ObjectMeta, w.Lifecycle, w.Selector = KindDaemonSet, &o.ObjectMeta, o.Spec.Lifecycle, o.Spec.Selector
		rolling := o.Spec.UpdateStrategy.RollingUpdate
		w.Template, w.UpdatesInPlace = templateOf(&o.Spec.Template), rolling != nil && rolling.Type == kruisev1alpha1.InplaceRollingUpdateType
	default:
		return nil
	}
	return w
}

func templateOf(t *corev1.PodTemplateSpec) Template {
	return Template{Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers, spec: &t.Spec}
}

// SameTraffic reports whether the shares of two versions of a workload are the same: its generation does not count them. Without the
// annotation its revisions do not matter.
func SameTraffic(old, now client.Object) bool {
	if old == nil || now == nil {
		return true
	}
	text, found := now.GetAnnotations()[lifecycle.AnnotationTraffic]
	before, had := old.GetAnnotations()[lifecycle.AnnotationTraffic]
	if !found && !had {
		return true
	}
	was, is := AsWorkload(old).revisions, AsWorkload(now).revisions
	return text == before && found == had && (is == nil || *was == *is)
}

// SameWorkload is true if, for example, only replicas changed. Nil equals nothing.
func SameWorkload(old, now client.Object) bool {
	if old == nil || now == nil || old.GetUID() != now.GetUID() {
		return false
	}
	if old.GetGeneration() == now.GetGeneration() && !Behind(now.GetResourceVersion(), old.GetResourceVersion()) {
		return true // an API server that was restored from a backup counts the generations again
	}
	was, is := AsWorkload(old), AsWorkload(now)
	return equality.Semantic.DeepEqual(was.Lifecycle, is.Lifecycle) && equality.Semantic.DeepEqual(was.Selector, is.Selector) &&
		was.Template.equal(&is.Template)
}

// ForDecision accepts nil.
func (w *Workload) ForDecision() *lifecycle.Workload {
	if w == nil {
		return nil
	}
	return &lifecycle.Workload{
		Lifecycle:           w.Lifecycle,
		Selector:            w.Selector,
		TemplateLabels:      w.Template.Labels,
		TemplateAnnotations: w.Template.Annotations,
		TemplateFinalizers:  w.Template.Finalizers,
		Annotations:         w.Annotations,
		Revisions:           w.revisions,
	}
}

// DeletesSpecified reports whether OpenKruise deletes a pod with the specified-delete label:
//
//	CloneSet                yes
//	DaemonSet               no
//	Advanced StatefulSet    if Parallel, not OnDelete, and not paused
//
// With OrderedReady it first waits for the other pods, and one at a hook counts as unavailable (OpenKruise's stateful_set_control.go).
func (w *Workload) DeletesSpecified() bool { return w.deletesSpecified }

// Subject describes the template's pods, without nodes.
func (w *Workload) Subject() service.Subject {
	return service.Subject{
		Namespace: w.GetNamespace(), Workload: w.GetName(),
		Labels: w.Template.Labels, Annotations: w.Template.Annotations, Spec: new(w.Template.Spec()),
	}
}

// OwnerOf returns the pod's controller if it is one of [Kinds], or nil.
func OwnerOf(pod *lifecycle.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || !strings.HasPrefix(owner.APIVersion, kruisev1alpha1.GroupVersion.Group+"/") || !slices.Contains(Kinds(), owner.Kind) {
		return nil
	}
	return owner
}

// WorkloadOf returns the pod's workload from the first reader that has it, or nil.
func WorkloadOf(ctx context.Context, pod *lifecycle.Pod, readers ...client.Reader) (*Workload, error) {
	owner := OwnerOf(pod)
	if owner == nil {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}
	for _, reader := range readers {
		object := NewObject(owner.Kind)
		err := reader.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
		if err == nil && object.GetUID() == owner.UID {
			return AsWorkload(object), nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading %s %s: %w", owner.Kind, key, err)
		}
	}
	return nil, nil
}

// EachWorkload calls do with each workload listed.
func EachWorkload(ctx context.Context, reader client.Reader, do func(*Workload), options ...client.ListOption) error {
	for _, list := range []client.ObjectList{
		&kruisev1alpha1.CloneSetList{}, &kruisev1beta1.StatefulSetList{}, &kruisev1alpha1.DaemonSetList{},
	} {
		if err := reader.List(ctx, list, options...); err != nil {
			return fmt.Errorf("listing workloads: %w", err)
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error { // these are lists
			if workload, is := object.(client.Object); is {
				do(AsWorkload(workload))
			}
			return nil
		})
	}
	return nil
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Workloads tells [Claims] the names in use, and counts workloads with only foreign hooks.
type Workloads struct {
	cache  client.Reader
	pods   Pods
	claims *Claims
	scope  *Scope

	mu          sync.Mutex
	current     bool
	readRecords bool
	rules       *Rules
	unmatched   map[types.UID]bool
}

// Changed makes the next [Workloads.Refresh] read the cache.
func (w *Workloads) Changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = false
}

// Unmatched counts workloads with hooks of which none is Rollcall's.
func (w *Workloads) Unmatched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unmatched)
}

// Refresh reads the cache if anything changed. The registries are those in use.
func (w *Workloads) Refresh(ctx context.Context, rules *Rules, registries []lifecycle.Source, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current && w.rules == rules {
		return nil
	}
	if w.rules != rules {
		w.claims.reconfigured(registries, now)
	}
	if !w.readRecords && !w.claims.haveListed(registries) {
		if err := w.refreshRecords(ctx, registries, now); err != nil {
			return err
		}
	}
	namespaces, err := readNamespaces(ctx, w.cache)
	if err != nil {
		return err
	}
	users, unmatched := map[lifecycle.Service]map[string]bool{}, map[types.UID]bool{}
	err = EachWorkload(ctx, w.cache, func(workload *Workload) {
		if !w.scope.Watches(workload.GetNamespace()) {
			return
		}
		hooks := lifecycle.HooksOf(workload.ForDecision(), rules.Ownership)
		if hooks.Foreign {
			unmatched[workload.GetUID()] = true
			w.warnUnmatched(ctx, workload, rules)
		}
		if hooks.Any() {
			addUser(users, workload, namespaces[workload.GetNamespace()].labels, rules.Services, registries)
		}
	}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	w.claims.observed(namespaces, users, now)
	w.unmatched, w.rules, w.current = unmatched, rules, true
	return nil
}

// refreshRecords reads, once, what the leaders before this one have left in registries that have yet to list it.
func (w *Workloads) refreshRecords(ctx context.Context, registries []lifecycle.Source, now time.Time) error {
	pods, err := w.pods.List(ctx, Which{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	w.claims.recorded(pods, registries, now)
	w.readRecords = true
	return nil
}

func readNamespaces(ctx context.Context, cache client.Reader) (map[string]namespaceFacts, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	namespaces := make(map[string]namespaceFacts, len(list.Items))
	for i := range list.Items {
		one := &list.Items[i]
		namespaces[one.Name] = namespaceFacts{created: one.CreationTimestamp.Time, labels: one.Labels}
	}
	return namespaces, nil
}

// warnUnmatched logs each once: hooks.owned may have a typo.
func (w *Workloads) warnUnmatched(ctx context.Context, workload *Workload, rules *Rules) {
	if w.unmatched[workload.GetUID()] {
		return
	}
	log.FromContext(ctx).Info("A workload has lifecycle hooks and Rollcall owns no handler in them: its pods are left alone",
		"kind", workload.Kind, "workload", client.ObjectKeyFromObject(workload.Object), "owned", rules.Ownership.String())
}

func addUser(
	users map[lifecycle.Service]map[string]bool, w *Workload, namespace labels.Set, rules service.Rules, registries []lifecycle.Source,
) {
	subject := w.Subject()
	subject.NamespaceLabels = namespace
	for _, in := range registries {
		endpoints, _ := rules.EndpointsIn(in.Registry, subject) // the pods get the warning
		for _, e := range endpoints {
			name := claimKey(e.Service)
			if users[name] == nil {
				users[name] = map[string]bool{}
			}
			users[name][w.GetNamespace()] = true
		}
	}
}

// Behind compares resource versions. If either is empty, it is false.
func Behind(version, other string) bool {
	if other == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order < 0
}
