package lifecycle

import (
	"slices"
)

// GuardFinalizer keeps a pod until it was taken out.
const GuardFinalizer = "rollcall.dev/guard"

// Guard is what to do with [GuardFinalizer]. Taking a pod out for good removes it anyway.
type Guard string

// GuardPut adds it before the pod is registered. GuardFree removes it, from a pod that ends before any call.
const (
	GuardLeave Guard = ""
	GuardPut   Guard = "Put"
	GuardFree  Guard = "Free"
)

// GuardOf decides about the guard. ownerGone: the workload is gone, so the pod soon will be.
func GuardOf(pod *Pod, hooks Hooks, wanted, ownerGone bool) Guard {
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

func guarded(pod *Pod) bool { return slices.Contains(pod.Finalizers, GuardFinalizer) }

func (in Input) guard(d *Decision) {
	switch guard := guardHandler(); {
	case d.Row == RowUnknownState:
	case d.Row == RowGone && in.Guard == GuardFree:
		d.Arm.Clear = []Handler{guard}
	case d.Want == Absent, in.Guard == GuardFree:
		d.Then.Clear = union(d.Then.Clear, []Handler{guard})
	case d.Want == InService && in.Guard == GuardPut:
		d.Arm.Set = union(d.Arm.Set, []Handler{guard})
	}
}
