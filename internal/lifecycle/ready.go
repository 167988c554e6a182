package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionInRotation is the pod's condition that says whether the registries give it to clients.
const ConditionInRotation corev1.PodConditionType = "rollcall.dev/InRotation"

// GatesNotReady is why kubelet says that a pod is not ready of which only readiness gates are missing. Where a node is lost,
// Kubernetes sets Ready to false and leaves the reason and the other conditions as they were: of a pod that was out of rotation
// before, nothing changes. Its node tells, see [Input.Ready].
// https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/status/generate.go#L40
const GatesNotReady = "ReadinessGatesNotReady"

// Ready reports whether the pod can be put in service, or stay: it is ready and does not end. Of a node that is lost, no pod can
// but those that Kubernetes still has as Ready.
func (in Input) Ready() bool {
	return in.Ending == "" && IsReady(in.Pod) && (!in.NodeLost || IsTrue(in.Pod, corev1.PodReady))
}

// IsReady reports the pod's Ready condition, to which Kruise's readiness gates count. Where [ConditionInRotation] is a readiness
// gate it does not count: the pod would wait to be registered until it is registered.
func IsReady(pod *corev1.Pod) bool {
	if IsTrue(pod, corev1.PodReady) {
		return true
	}
	if !AwaitsGates(pod) {
		return false
	}
	gated := false
	for _, gate := range pod.Spec.ReadinessGates {
		switch {
		case gate.ConditionType == ConditionInRotation:
			gated = true
		case !IsTrue(pod, gate.ConditionType):
			return false
		}
	}
	return gated && IsTrue(pod, corev1.ContainersReady)
}

// AwaitsGates reports whether only readiness gates keep a pod from being ready, as kubelet has it.
func AwaitsGates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Reason == GatesNotReady
	})
}

// readyBy returns the conditions on which [IsReady] rests. Ready is one in any case; of a pod that is ready but for
// [ConditionInRotation] it stays false when a container turns unready.
func readyBy(pod *corev1.Pod) []corev1.PodConditionType {
	rests := []corev1.PodConditionType{corev1.PodReady}
	if IsTrue(pod, corev1.PodReady) || !IsReady(pod) {
		return rests
	}
	rests = append(rests, corev1.ContainersReady)
	for _, gate := range pod.Spec.ReadinessGates {
		if gate.ConditionType != ConditionInRotation {
			rests = append(rests, gate.ConditionType)
		}
	}
	return rests
}

// ReadySince returns since when a pod that is ready is so; zero where it is not.
func ReadySince(pod *corev1.Pod) (since time.Time) {
	rests := readyBy(pod)
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionTrue && slices.Contains(rests, c.Type) && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// WasReady reports whether the pod is ready, or ever was, as far as kubelet goes: readiness gates are for others to open. A condition
// that was never true is as old as the pod's start, which kubelet writes with it, a second apart at most.
func WasReady(pod *corev1.Pod) bool {
	started := pod.Status.StartTime
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			return false
		}
		return c.Status == corev1.ConditionTrue || started != nil && c.LastTransitionTime.Sub(started.Time) > time.Second
	})
}

// InRotation reports whether the pod's condition says that it is in rotation.
func InRotation(pod *corev1.Pod) bool { return IsTrue(pod, ConditionInRotation) }

// RotationCondition is the condition of a pod that is in rotation, or not, since that time.
func RotationCondition(in bool, since time.Time) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: ConditionInRotation, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since),
		Reason: "TakenOut", Message: "the registries were asked to send the pod no clients",
	}
	if in {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "Acknowledged", "the registries have acknowledged the pod in service"
	}
	return c
}

// IsTrue reports whether the pod's condition is True.
func IsTrue(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}
