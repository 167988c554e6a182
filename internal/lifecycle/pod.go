package lifecycle

import (
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MovedAt returns when Kruise moved the pod into its present state.
func MovedAt(pod *corev1.Pod) (time.Time, error) {
	return time.Parse(time.RFC3339, pod.Annotations[appspub.LifecycleTimestampKey])
}

// State is where Kruise has the pod; empty of one that it has put nowhere.
func State(pod *corev1.Pod) appspub.LifecycleStateType {
	return appspub.LifecycleStateType(pod.Labels[appspub.LifecycleStateKey])
}

// RolloutWaits reports whether OpenKruise or the API server waits to update or delete the pod.
func RolloutWaits(pod *corev1.Pod) bool {
	return Leaves(pod) || State(pod) == appspub.LifecycleStatePreparingUpdate
}

// Leaves reports whether the pod is being deleted, or OpenKruise waits to delete it.
func Leaves(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || State(pod) == appspub.LifecycleStatePreparingDelete
}

// MustStayOut reports whether the pod is where it is never wanted in service.
func MustStayOut(pod *corev1.Pod) bool {
	return RolloutWaits(pod) || State(pod) == appspub.LifecycleStateUpdating
}

// MayBeNew reports whether the pod may have just been created. A DaemonSet's has a state only once it is to be deleted, and then
// its application has long been registered.
func MayBeNew(pod *corev1.Pod) bool {
	at := State(pod)
	return at == appspub.LifecycleStatePreparingNormal || at == appspub.LifecycleStateNormal
}

// Finished reports whether all containers of the pod have ended for good.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Ends reports whether the pod is being deleted, or all of its containers have ended: it never serves again.
func Ends(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil || Finished(pod) }

// AddressOf returns the address at which the pod may serve. Another pod may have that of one whose containers have ended for good.
func AddressOf(pod *corev1.Pod) string {
	if Finished(pod) {
		return ""
	}
	return pod.Status.PodIP
}

// marked reports whether the pod carries a newly-created mark, as label or annotation. The public examples use "true"
// and call any other value done.
func marked(pod *corev1.Pod, key string) bool {
	return pod.Labels[key] == "true" || pod.Annotations[key] == "true"
}

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
