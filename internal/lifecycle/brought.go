package lifecycle

import (
	"fmt"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// Brought returns the remedy if an update may have set a handler of inPlaceUpdate, such as label example.com/in=true of the new template.
// OpenKruise then counts the updated pod as available, registered or not.
func (in Input) Brought() string {
	if !passedUpdating(in.Pod, in.Record) {
		return ""
	}
	templated := filter(in.Hooks.Templated(in.Hooks.InPlaceUpdate), func(h Handler) bool { return h.SetOn(in.Pod) })
	if len(templated) == 0 {
		return ""
	}
	return fmt.Sprintf("the workload's template sets %s, a handler of hook inPlaceUpdate: if an update adds it to the template, OpenKruise "+
		"counts the updated pod as available before it is registered: remove it from spec.template; Rollcall sets it on each pod", templated[0])
}

func passedUpdating(pod *Pod, record Record) bool {
	switch State(pod) {
	case appspub.LifecycleStateUpdating:
		return true
	case appspub.LifecycleStateNormal:
		from := appspub.LifecycleStateType(record.Stamp.State)
		return record.Want == OutOfService && (from == appspub.LifecycleStatePreparingUpdate || from == appspub.LifecycleStateUpdating)
	default:
		return false
	}
}
