package clusterstate

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// The kinds of OpenKruise whose pods Rollcall drives. An Advanced DaemonSet has the hook preDelete only, and its pods carry no
// lifecycle state before that (pkg/controller/daemonset of OpenKruise).
const (
	KindCloneSet    = "CloneSet"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
)

// Kinds returns the kinds of workloads.
func Kinds() []string { return []string{KindCloneSet, KindStatefulSet, KindDaemonSet} }

// AddToScheme adds the types of the [Kinds] and of their lists.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(kruisev1alpha1.AddToScheme(scheme), kruisev1beta1.AddToScheme(scheme))
}

// NewObject returns an empty object of the kind, nil where it is none of [Kinds].
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

// Workload is what Rollcall reads of a workload. It shares the object that it was made of, and must not be changed.
type Workload struct {
	client.Object

	Kind      string
	Lifecycle *appspub.Lifecycle
	Selector  *metav1.LabelSelector
	Template  *corev1.PodTemplateSpec
}

// AsWorkload returns what Rollcall reads of an object of one of the [Kinds], nil of any other.
func AsWorkload(object client.Object) *Workload {
	switch o := object.(type) {
	case *kruisev1alpha1.CloneSet:
		return &Workload{Object: o, Kind: KindCloneSet, Lifecycle: o.Spec.Lifecycle, Selector: o.Spec.Selector, Template: &o.Spec.Template}
	case *kruisev1beta1.StatefulSet:
		return &Workload{Object: o, Kind: KindStatefulSet, Lifecycle: o.Spec.Lifecycle, Selector: o.Spec.Selector, Template: &o.Spec.Template}
	case *kruisev1alpha1.DaemonSet:
		return &Workload{Object: o, Kind: KindDaemonSet, Lifecycle: o.Spec.Lifecycle, Selector: o.Spec.Selector, Template: &o.Spec.Template}
	default:
		return nil
	}
}

// SameWorkload reports whether nothing has changed that Rollcall reads of a workload, as where an autoscaler has set its replicas.
// A nil one, which is yet to come or gone, is not the same as any other.
func SameWorkload(old, now client.Object) bool {
	if old == nil || now == nil || old.GetUID() != now.GetUID() {
		return false
	}
	if old.GetGeneration() == now.GetGeneration() && !Behind(now.GetResourceVersion(), old.GetResourceVersion()) {
		return true // an API server that was restored from a backup counts the generations again
	}
	was, is := AsWorkload(old), AsWorkload(now)
	return equality.Semantic.DeepEqual(was.Lifecycle, is.Lifecycle) && equality.Semantic.DeepEqual(was.Selector, is.Selector) &&
		equality.Semantic.DeepEqual(was.Template, is.Template)
}

// ForDecision returns what a decision needs of the workload, nil of none.
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
	}
}

// DeletesSpecified reports whether OpenKruise deletes a pod of the workload on the label that asks for it. It deletes none of a
// DaemonSet so, and none of an Advanced StatefulSet that is paused or leaves updates to people. With OrderedReady it waits for the
// other pods first, and counts one at a hook as not available (OpenKruise's stateful_set_control.go).
func (w *Workload) DeletesSpecified() bool {
	set, is := w.Object.(*kruisev1beta1.StatefulSet)
	if !is {
		return w.Kind != KindDaemonSet
	}
	strategy := set.Spec.UpdateStrategy
	return set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement && strategy.Type != appsv1.OnDeleteStatefulSetStrategyType &&
		(strategy.RollingUpdate == nil || !strategy.RollingUpdate.Paused)
}

// Subject describes the pods that the template makes, but for their nodes.
func (w *Workload) Subject() service.Subject {
	return service.Subject{
		Namespace: w.GetNamespace(), Workload: w.GetName(),
		Labels: w.Template.Labels, Annotations: w.Template.Annotations, Spec: &w.Template.Spec,
	}
}

// OwnerOf returns the reference to the workload of OpenKruise that the pod belongs to, nil where it belongs to none that
// Rollcall drives.
func OwnerOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || !strings.HasPrefix(owner.APIVersion, kruisev1alpha1.GroupVersion.Group+"/") || !slices.Contains(Kinds(), owner.Kind) {
		return nil
	}
	return owner
}

// WorkloadOf returns the workload that the pod belongs to, as the first of the readers has it that has it at all, or nil.
func WorkloadOf(ctx context.Context, pod *corev1.Pod, readers ...client.Reader) (*Workload, error) {
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

// EachWorkload calls do with each workload that the reader lists with the options.
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

// Workloads reads which service names the workloads use, which is for the [Claims], and which workloads have hooks of which
// none is Rollcall's. It reads the cache anew after a workload, a namespace or the rules changed.
type Workloads struct {
	cache  client.Reader
	claims *Claims

	mu          sync.Mutex
	current     bool
	readRecords bool
	rules       *Rules
	unmatched   map[types.UID]bool
}

// Changed has the cache read anew at the next [Workloads.Refresh].
func (w *Workloads) Changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = false
}

// Unmatched returns how many workloads have hooks of which none is Rollcall's.
func (w *Workloads) Unmatched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unmatched)
}

// Refresh reads the cache where something changed. The registries are those in use.
func (w *Workloads) Refresh(ctx context.Context, rules *Rules, registries []lifecycle.Source, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current && w.rules == rules {
		return nil
	}
	known := rules.configured(registries)
	if w.rules != rules {
		w.claims.reconfigured(known, now)
	}
	if !w.readRecords && !w.claims.haveListed(registries) {
		if err := w.refreshRecords(ctx, known, now); err != nil {
			return err
		}
	}
	namespaces, err := w.readNamespaces(ctx)
	if err != nil {
		return err
	}
	users, unmatched := map[string]map[string]bool{}, map[types.UID]bool{}
	err = EachWorkload(ctx, w.cache, func(workload *Workload) {
		hooks := lifecycle.HooksOf(workload.ForDecision(), rules.Ownership)
		if hooks.Foreign {
			unmatched[workload.GetUID()] = true
			w.warnUnmatched(ctx, workload, rules)
		}
		if hooks.Any() {
			addUser(users, workload, rules.Services)
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
func (w *Workloads) refreshRecords(ctx context.Context, known configured, now time.Time) error {
	var pods corev1.PodList
	if err := w.cache.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	w.claims.recorded(pods.Items, known, now)
	w.readRecords = true
	return nil
}

func (w *Workloads) readNamespaces(ctx context.Context) (map[string]namespaceFacts, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	namespaces := make(map[string]namespaceFacts, len(list.Items))
	for i := range list.Items {
		one := &list.Items[i]
		namespaces[one.Name] = namespaceFacts{created: one.CreationTimestamp.Time, labels: one.Labels}
	}
	return namespaces, nil
}

// warnUnmatched logs once that hooks.owned matches no handler of a workload's hooks, which is how a typo in it shows.
func (w *Workloads) warnUnmatched(ctx context.Context, workload *Workload, rules *Rules) {
	if w.unmatched[workload.GetUID()] {
		return
	}
	log.FromContext(ctx).Info("A workload has lifecycle hooks and no handler in them matches hooks.owned: its pods are left alone",
		"kind", workload.Kind, "workload", client.ObjectKeyFromObject(workload), "owned", rules.Ownership.Owned)
}

func addUser(users map[string]map[string]bool, workload *Workload, rules service.Rules) {
	endpoints, err := rules.EndpointsOf(workload.Subject())
	if err != nil {
		return // the pods get the warning
	}
	for _, e := range endpoints {
		name := claimKey(e.Service)
		if users[name] == nil {
			users[name] = map[string]bool{}
		}
		users[name][workload.GetNamespace()] = true
	}
}

// Behind reports whether one resource version of an object is older than another. An empty one is older than none.
func Behind(version, other string) bool {
	if other == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order < 0
}
