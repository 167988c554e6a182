package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// GuardFinalizer keeps a pod from vanishing before it was taken out. It is ours whatever the configuration says of handlers.
const GuardFinalizer = "rollcall.dev/guard"

// Guard is what becomes of a pod's [GuardFinalizer]. Whatever it is, a pod that was taken out for good loses it.
type Guard string

// What becomes of it.
const (
	GuardLeave Guard = ""
	// GuardPut puts it on before the pod is registered.
	GuardPut Guard = "Put"
	// GuardFree takes it off, and from a pod that ends at once.
	GuardFree Guard = "Free"
)

// GuardOf says what becomes of the guard of a pod with these hooks, by whether the configuration wants one. ownerGone: the pod
// still names a workload that is gone, so it will be deleted soon.
func GuardOf(pod *corev1.Pod, hooks Hooks, wanted, ownerGone bool) Guard {
	switch {
	case !wanted:
		return GuardFree
	case pod.DeletionTimestamp != nil, ownerGone:
		return GuardLeave
	case !hooks.Any():
		return GuardFree
	default:
		return GuardPut
	}
}

func guardHandler() Handler { return Handler{Finalizer: GuardFinalizer} }

func guarded(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, GuardFinalizer) }

// guard adds to the decision what becomes of the guard. It goes with the registry's word that the pod is absent, or because
// it is no longer wanted; then a pod that ends need not wait for it.
func (in Input) guard(d *Decision) {
	guard := []Handler{guardHandler()}
	switch {
	case d.Row == RowUnknownState:
	case d.Row == RowGone && in.Guard == GuardFree:
		d.Arm.Clear = guard
	case d.Want == Absent, in.Guard == GuardFree:
		d.Then.Clear = union(d.Then.Clear, guard)
	case d.Want == InService && in.Guard == GuardPut:
		d.Arm.Set = union(d.Arm.Set, guard)
	}
}
