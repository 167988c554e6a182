package report

import (
	"cmp"

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
		return waiting.UnknownState(string(lifecycle.State(in.Pod)))
	case len(in.Hooks.Refused) > 0:
		return waiting.Described(reason.HandlerRefused, in.Hooks.Refused[0].Why)
	}
	return waiting.Blocker{}
}

func (v visited) outOfRotation() waiting.Blocker {
	d, in := v.Decision, v.Result.Input
	switch {
	case in.HeldNotReady(d):
		return waiting.HeldNotReady()
	case in.Detached || in.OutForItsEnd(d):
		return ending(in)
	case d.Row == lifecycle.RowNormalNotReady && d.Want == lifecycle.Keep:
		return v.keptUnready()
	case d.Row == lifecycle.RowUpdating:
		return waiting.Described(reason.NotReady, lifecycle.NotUpdatedBecause(in.Pod))
	case in.AwaitsReadiness(d):
		return waiting.NotReady(in.Pod.Status.NotReady)
	}
	return waiting.Blocker{}
}

// keptUnready is for an unready pod that stays as it is.
func (v visited) keptUnready() waiting.Blocker {
	in := v.Result.Input
	switch out := v.MayBeOut(); {
	case !out && v.Panic.Service != "" && in.Record.Want == lifecycle.InService:
		return waiting.Described(reason.PanicThreshold, v.Panic.Message(v.Settings.PanicThreshold))
	case out || in.AwaitsReadiness(v.Decision):
		return waiting.NotReady(in.Pod.Status.NotReady)
	}
	return waiting.Blocker{}
}

func ending(in lifecycle.Input) waiting.Blocker {
	switch {
	case in.Detached:
		return waiting.OutDetached(in.Ending)
	case in.HeldOut:
		return waiting.HeldOut(in.Ending)
	}
	return waiting.Ending(in.Ending)
}

func (v visited) released() waiting.Blocker {
	if !v.Result.Input.Released(v.Decision) {
		return waiting.Blocker{}
	}
	return waiting.AwaitingOpenKruise()
}
