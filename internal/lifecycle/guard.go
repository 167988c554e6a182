package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// GuardFinalizer keeps a pod from vanishing before it was taken out. It is ours whatever the configuration says of handlers.
const GuardFinalizer = "rollcall.dev/guard"

// GuardPolicy says which pods get the [GuardFinalizer].
type GuardPolicy string

// The policies. Any other value counts as GuardNever.
const (
	// GuardAuto guards the pods that are in a registry which can't list: nobody would find there what a pod left that
	// vanished unseen.
	GuardAuto   GuardPolicy = "Auto"
	GuardAlways GuardPolicy = "Always"
	GuardNever  GuardPolicy = "Never"
)

// Guard is what shall become of a pod's [GuardFinalizer]. Whatever it is, a pod that was taken out for good loses it.
type Guard string

// What shall become of it.
const (
	GuardLeave Guard = ""
	// GuardPut puts it on before the pod is registered.
	GuardPut Guard = "Put"
	// GuardFree takes it off, and from a pod that ends at once.
	GuardFree Guard = "Free"
)

// GuardFacts are what a [GuardPolicy] looks at.
type GuardFacts struct {
	// Dying: the pod is being deleted.
	Dying bool
	// Hooked: a hook of its workload is ours.
	Hooked bool
	// OwnerGone: the pod still names a workload that is gone, so it will be deleted soon.
	OwnerGone bool
	// Unlisted: a registry of the pod can't list. Undescribed: it isn't known which registries those are.
	Unlisted, Undescribed bool
}

// Of applies the policy.
func (p GuardPolicy) Of(f GuardFacts) Guard {
	switch {
	case p != GuardAuto && p != GuardAlways:
		return GuardFree
	case f.Dying, f.OwnerGone:
		return GuardLeave
	case !f.Hooked:
		return GuardFree
	case p == GuardAlways, f.Unlisted:
		return GuardPut
	case f.Undescribed:
		return GuardLeave
	default:
		return GuardFree
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
