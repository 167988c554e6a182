package report

import (
	"cmp"
	"fmt"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// explain is for registries that hold what they must.
func (v visited) explain() waiting.Blocker {
	return cmp.Or(v.misdescribed(), v.outOfRotation(), v.Warning, v.released())
}

func (v visited) misdescribed() waiting.Blocker {
	d, in := v.Decision, v.Result.Input
	switch {
	case v.Problem.Reason != "" && d.Row.Serves():
		return v.Problem
	case d.Row == lifecycle.RowUnknownState:
		return waiting.Blocker{Reason: reason.UnknownState, Message: fmt.Sprintf(
			"lifecycle state %q is not one that Rollcall knows: the registry is left as it is; see the supported OpenKruise versions",
			lifecycle.State(in.Pod))}
	case len(in.Hooks.Refused) > 0:
		return waiting.Blocker{Reason: reason.HandlerRefused, Message: in.Hooks.Refused[0].Why}
	}
	return waiting.Blocker{}
}

func (v visited) outOfRotation() waiting.Blocker {
	d, in := v.Decision, v.Result.Input
	keptOut := d.Row == lifecycle.RowNormalNotReady && d.Want == lifecycle.Keep && v.MayBeOut()
	switch {
	case in.HeldNotReady(d):
		return waiting.Blocker{Reason: reason.HeldNotReady, Message: "OpenKruise holds the pod not ready (markPodNotReady) and releases it " +
			"only after an in-place update, which was rolled back: delete the pod, or update it in place"}
	case in.OutForItsEnd(d):
		return waiting.Blocker{Reason: reason.Ending, Message: "the pod is out of rotation before it ends: " + in.Ending}
	case v.Panic.Service != "" && in.KeptUnready(d) && !keptOut:
		return waiting.Blocker{Reason: reason.PanicThreshold, Message: v.Panic.Message(v.Settings.PanicThreshold)}
	case d.Row == lifecycle.RowUpdating:
		return waiting.Blocker{Reason: reason.Updating, Message: lifecycle.NotUpdatedBecause(in.Pod)}
	case in.AwaitsReadiness(d) || keptOut:
		return waiting.Blocker{Reason: reason.NotReady, Message: cmp.Or(in.Pod.Status.NotReady, "its node is not Ready")}
	}
	return waiting.Blocker{}
}

func (v visited) released() waiting.Blocker {
	if !v.Result.Input.Released(v.Decision) {
		return waiting.Blocker{}
	}
	return waiting.Blocker{Reason: reason.AwaitingOpenKruise, Message: "the pod is out of the registry and its hook is released; " +
		"OpenKruise has neither updated nor deleted it yet"}
}
