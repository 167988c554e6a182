package lifecycle

import (
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// UnreadyPolicy says what becomes of a pod in Normal that is not ready.
type UnreadyPolicy string

// The policies. Any other value counts as UnreadyKeep.
const (
	// UnreadyFailOver takes the pod out of service, unless too many of its service's pods are not ready at once.
	UnreadyFailOver UnreadyPolicy = "FailOver"
	// UnreadyKeep leaves it as it is.
	UnreadyKeep UnreadyPolicy = "Keep"
)

// Peers are the pods of one service that count against the panic threshold; see [Counts].
type Peers struct {
	All, Unready int
}

// Panic reports whether more than the threshold of them, in percent, are not ready. None of none is never more.
func (p Peers) Panic(threshold int) bool { return p.Unready*100 > threshold*p.All }

// Counts reports whether the pod is one of its service's [Peers]: Kruise has it in Normal and it lives, so it should be in
// service. What is out on purpose counts on neither side: a pod that is being made, updated or deleted is no sign of a
// fault, and none of health.
func Counts(pod *corev1.Pod) bool {
	return State(pod) == appspub.LifecycleStateNormal && !Ends(pod)
}

// Unrecorded reports whether the record has to name a place before all of its registries have acknowledged: a pod in Normal counts among
// its service's [Peers] by the record, and one with a record leaves what that names, whichever manager leads then. A pod without a record
// waits for lists, and so does one that was never in service.
func (in Input) Unrecorded(at Key) bool {
	return (Counts(in.Pod) || in.Record.Exists()) && (!in.Record.WasInService() || !slices.Contains(in.Record.Instances, at))
}

// KeptInPanic reports whether the pod is in service only because of the panic. One that was taken out before stays out, and
// waits for nothing but its own readiness.
func (in Input) KeptInPanic(d Decision) bool {
	return d.Row == RowNormalNotReady && d.Want == Keep && in.Unready == UnreadyFailOver && in.Record.Want == InService
}

// HeldNotReady recognizes a rollback in PreparingUpdate to Normal, after which Kruise never sets its own readiness gate again.
func (in Input) HeldNotReady(d Decision) bool {
	return d.Row == RowNormalNotReady && in.Hooks.MarksNotReady && ShutByLifecycle(in.Pod)
}

// LifecycleKey is in the message of Kruise's readiness gate while a hook with markPodNotReady keeps it shut. What else shuts it, a
// ContainerRecreateRequest say, opens it again.
// https://github.com/openkruise/kruise/blob/v1.8.3/pkg/util/lifecycle/lifecycle_utils.go#L241
const LifecycleKey = `"userAgent":"Lifecycle"`

// ShutByLifecycle reports whether a hook keeps Kruise's readiness gate shut.
func ShutByLifecycle(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == appspub.KruisePodReadyConditionType && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, LifecycleKey)
	})
}
