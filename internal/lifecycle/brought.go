package lifecycle

import (
	"fmt"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// Brought reports that an update may have brought a handler of inPlaceUpdate along, and what to write instead; empty if not. OpenKruise
// writes the difference of the two templates in the same step as the move to Updating, and a pod that carries all handlers when its update
// ends counts as available, whether a registry has it or not.
func (in Input) Brought() string {
	if !in.passedUpdating() {
		return ""
	}
	templated := filter(in.Hooks.Templated(in.Hooks.InPlaceUpdate), func(h Handler) bool { return h.SetOn(in.Pod) })
	if len(templated) == 0 {
		return ""
	}
	return fmt.Sprintf("the workload's template sets %s, a handler of hook inPlaceUpdate: if an update adds it to the template, OpenKruise "+
		"counts the updated pod as available before it is registered: remove it from spec.template; Rollcall sets it on each pod", templated[0])
}

// passedUpdating reports whether the pod is in Updating, or in Normal with a record by which it was out for an update.
func (in Input) passedUpdating() bool {
	switch State(in.Pod) {
	case appspub.LifecycleStateUpdating:
		return true
	case appspub.LifecycleStateNormal:
		from := appspub.LifecycleStateType(in.Record.Stamp.State)
		return in.Record.Want == OutOfService && (from == appspub.LifecycleStatePreparingUpdate || from == appspub.LifecycleStateUpdating)
	default:
		return false
	}
}
