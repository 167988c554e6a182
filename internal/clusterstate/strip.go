package clusterstate

import (
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
)

// StripWorkload does for workloads what [Sharer.StripPod] does for pods.
func StripWorkload(object any) (any, error) {
	switch o := object.(type) {
	case *kruisev1alpha1.CloneSet:
		stripMeta(&o.ObjectMeta)
		o.Spec = kruisev1alpha1.CloneSetSpec{Selector: o.Spec.Selector, Lifecycle: o.Spec.Lifecycle, Template: stripTemplate(&o.Spec.Template)}
		o.Status = kruisev1alpha1.CloneSetStatus{}
	case *kruisev1beta1.StatefulSet:
		stripMeta(&o.ObjectMeta)
		o.Spec = kruisev1beta1.StatefulSetSpec{
			Selector: o.Spec.Selector, Lifecycle: o.Spec.Lifecycle, Template: stripTemplate(&o.Spec.Template),
			PodManagementPolicy: o.Spec.PodManagementPolicy, UpdateStrategy: o.Spec.UpdateStrategy,
		}
		o.Status = kruisev1beta1.StatefulSetStatus{}
	case *kruisev1alpha1.DaemonSet:
		stripMeta(&o.ObjectMeta)
		o.Spec = kruisev1alpha1.DaemonSetSpec{Selector: o.Spec.Selector, Lifecycle: o.Spec.Lifecycle, Template: stripTemplate(&o.Spec.Template)}
		o.Status = kruisev1alpha1.DaemonSetStatus{}
	}
	return object, nil
}

func stripTemplate(template *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      template.Labels,
			Annotations: template.Annotations,
			Finalizers:  template.Finalizers,
		},
		Spec: corev1.PodSpec{Containers: stripContainers(template.Spec.Containers)},
	}
}

func stripMeta(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
}

// stripContainers makes a new slice: one cut out of the old would keep the whole containers in memory.
func stripContainers(containers []corev1.Container) []corev1.Container {
	stripped := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		one := corev1.Container{Name: c.Name, Ports: c.Ports}
		if service.IsInjected(&c) {
			one.Env = []corev1.EnvVar{service.InjectedMark()}
		}
		stripped = append(stripped, one)
	}
	return stripped
}

// NodeMetadata is the form in which nodes are read: nothing of them but labels is of use.
func NodeMetadata() *metav1.PartialObjectMetadata { return metadataOf("Node") }

// NamespaceMetadata is the form in which namespaces are read: nothing of them but labels, age and deletion is of use.
func NamespaceMetadata() *metav1.PartialObjectMetadata { return metadataOf("Namespace") }

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return metadata
}

// StripNode does for nodes what [Sharer.StripPod] does for pods.
func StripNode(object any) (any, error) {
	if node, is := object.(*metav1.PartialObjectMetadata); is {
		labels := map[string]string{} // a map does not shrink
		for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
			if value, found := node.Labels[key]; found {
				labels[key] = value
			}
		}
		node.ObjectMeta = metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: labels}
	}
	return object, nil
}

// StripNamespace does for namespaces what [Sharer.StripPod] does for pods.
func StripNamespace(object any) (any, error) {
	if of, is := object.(*metav1.PartialObjectMetadata); is {
		of.ObjectMeta = metav1.ObjectMeta{
			Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Labels: of.Labels,
			CreationTimestamp: of.CreationTimestamp, DeletionTimestamp: of.DeletionTimestamp,
		}
	}
	return object, nil
}
