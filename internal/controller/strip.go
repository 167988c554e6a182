package controller

import (
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StripPod drops what Rollcall does not read from a pod before it is cached. What it is given may be changed, and
// anything but a pod is left alone. It is a cache.TransformFunc.
func StripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	stripMeta(&pod.ObjectMeta)
	pod.Spec = corev1.PodSpec{
		NodeName:       pod.Spec.NodeName,
		Containers:     stripContainers(pod.Spec.Containers),
		ReadinessGates: pod.Spec.ReadinessGates,
	}
	pod.Status = corev1.PodStatus{
		Phase:      pod.Status.Phase,
		Conditions: pod.Status.Conditions,
		PodIP:      pod.Status.PodIP,
		PodIPs:     pod.Status.PodIPs,
	}
	return pod, nil
}

// StripCloneSet does for CloneSets what [StripPod] does for pods.
func StripCloneSet(object any) (any, error) {
	workload, ok := object.(*kruisev1alpha1.CloneSet)
	if !ok {
		return object, nil
	}
	stripMeta(&workload.ObjectMeta)
	template := &workload.Spec.Template
	workload.Spec = kruisev1alpha1.CloneSetSpec{
		Selector:  workload.Spec.Selector,
		Lifecycle: workload.Spec.Lifecycle,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      template.Labels,
				Annotations: template.Annotations,
				Finalizers:  template.Finalizers,
			},
			Spec: corev1.PodSpec{Containers: stripContainers(template.Spec.Containers)},
		},
	}
	workload.Status = kruisev1alpha1.CloneSetStatus{}
	return workload, nil
}

func stripMeta(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
}

// stripContainers makes a new slice: one cut out of the old would keep the whole containers in memory.
func stripContainers(containers []corev1.Container) []corev1.Container {
	stripped := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		stripped = append(stripped, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	return stripped
}
