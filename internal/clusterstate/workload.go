package clusterstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	if old.GetGeneration() == now.GetGeneration() {
		return true
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
		err := meta.EachListItem(list, func(object runtime.Object) error {
			if workload, is := object.(client.Object); is {
				do(AsWorkload(workload))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("listing workloads: %w", err)
		}
	}
	return nil
}
