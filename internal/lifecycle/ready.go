package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionInRotation shows whether clients are given the pod.
const ConditionInRotation corev1.PodConditionType = "rollcall.dev/InRotation"

// Ready reports whether the pod can be in rotation. On a lost node, its condition must still be True.
func (in Input) Ready() bool {
	return in.Ending == "" && IsReady(in.Pod) && (!in.NodeLost || IsTrue(in.Pod, corev1.PodReady))
}

// IsReady reports the Ready condition. As a gate, [ConditionInRotation] does not count: the pod would wait for itself.
func IsReady(pod *Pod) bool {
	if IsTrue(pod, corev1.PodReady) {
		return true
	}
	if !pod.Status.OnlyGates {
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

// readyBy returns the conditions behind [IsReady]. While [ConditionInRotation] is false, Ready does not show an unready container.
func readyBy(pod *Pod) []corev1.PodConditionType {
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

// ReadySince returns since when the pod is ready, if it is.
func ReadySince(pod *Pod) (since time.Time) {
	rests := readyBy(pod)
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionTrue && slices.Contains(rests, c.Type) && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// WasReady reports whether kubelet ever found the pod ready, gates aside. A condition that was never true dates from the pod's start.
func WasReady(pod *Pod) bool {
	started := pod.Status.StartTime
	return slices.ContainsFunc(pod.Status.Conditions, func(c PodCondition) bool {
		if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			return false
		}
		return c.Status == corev1.ConditionTrue || started != nil && c.LastTransitionTime.Sub(started.Time) > time.Second
	})
}

// InRotation reports [ConditionInRotation].
func InRotation(pod *Pod) bool { return IsTrue(pod, ConditionInRotation) }

// RotationCondition returns [ConditionInRotation] as of since.
func RotationCondition(in bool, since time.Time) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: ConditionInRotation, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since),
		Reason: "TakenOut", Message: "the registries were asked to send the pod no clients",
	}
	if in {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "Acknowledged", "the registries have acknowledged the pod in rotation"
	}
	return c
}

// IsTrue reports whether the condition is True.
func IsTrue(pod *Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}
