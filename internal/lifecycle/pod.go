package lifecycle

import (
	"slices"
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

// AddressesOf returns the addresses at which a port of the pod is reached, [AddressOf] first: all of its own, and its node's where a
// container has the port there. No other pod of the node has it then.
func AddressesOf(pod *corev1.Pod, port int) []string {
	address := AddressOf(pod)
	if address == "" {
		return nil
	}
	return append([]string{address}, othersOf(pod, func(p corev1.ContainerPort) bool { return int(p.HostPort) == port })...)
}

// OtherAddressesOf returns all of [AddressesOf] for any port, but for the first.
func OtherAddressesOf(pod *corev1.Pod) []string {
	return othersOf(pod, func(p corev1.ContainerPort) bool { return p.HostPort > 0 })
}

func othersOf(pod *corev1.Pod, counts func(corev1.ContainerPort) bool) (others []string) {
	if AddressOf(pod) == "" {
		return nil
	}
	for _, own := range pod.Status.PodIPs {
		others = append(others, own.IP)
	}
	if onNode(pod, counts) {
		for _, nodes := range append(slices.Clip(pod.Status.HostIPs), corev1.HostIP{IP: pod.Status.HostIP}) {
			others = append(others, nodes.IP)
		}
	}
	others = slices.DeleteFunc(others, func(address string) bool { return address == "" || address == pod.Status.PodIP })
	slices.Sort(others)
	return slices.Compact(others)
}

// onNode reports whether a container has such a port at all addresses of the node.
func onNode(pod *corev1.Pod, such func(corev1.ContainerPort) bool) bool {
	for i := range pod.Spec.Containers {
		if slices.ContainsFunc(pod.Spec.Containers[i].Ports, func(p corev1.ContainerPort) bool {
			return such(p) && p.HostIP == "" && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
		}) {
			return true
		}
	}
	return false
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
