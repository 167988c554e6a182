package lifecycle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodID names one pod by its UID too: pods come and go under one name, and what one left behind must not be undone on the
// next.
type PodID struct {
	types.NamespacedName
	UID types.UID
}

// PodIDOf returns the pod's.
func PodIDOf(pod *corev1.Pod) PodID {
	return PodID{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID}
}
