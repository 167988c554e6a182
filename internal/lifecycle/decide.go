package lifecycle

import (
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// Want is the state that an entry must have.
type Want string

// Keep leaves an entry as it is.
const (
	Keep         Want = "Keep"
	InService    Want = "InService"
	OutOfService Want = "OutOfService"
	Absent       Want = "Absent"
)

// Row is a row of docs/decision-table.md.
type Row int

// The first row that matches applies.
const (
	RowGone                 Row = 1
	RowPreparingDelete      Row = 2
	RowPreparingUpdate      Row = 3
	RowUpdating             Row = 4
	RowUpdatedNotReady      Row = 5
	RowUpdated              Row = 6
	RowPreparingNormalUnfit Row = 7
	RowPreparingNormal      Row = 8
	RowNormal               Row = 9
	RowNormalNotReady       Row = 10
	RowUnknownState         Row = 11
)

// Serves reports whether the row wants the pod in rotation.
func (r Row) Serves() bool { return r == RowUpdated || r == RowPreparingNormal || r == RowNormal }

// Drains reports whether a drain delays Then. In RowGone none does: kubelet would not wait.
func (r Row) Drains() bool { return r == RowPreparingDelete || r == RowPreparingUpdate }

// Input is what a decision rests on.
type Input struct {
	Circumstances

	Pod       *Pod
	Hooks     Hooks
	Record    Record
	Ownership Ownership
	// Detached: its Ending is for [Input.Detach], HeldOut: for [Input.HoldOut] or, with WithoutShare, for [Input.LeaveOut].
	Detached     bool
	HeldOut      bool
	WithoutShare bool
	Guard        Guard
}

// Decision is what the registries must hold, and what to write to the pod:
//
//	Arm   before any call: what makes OpenKruise wait for a pod in rotation; also [Input.takenBack] and an unwanted guard
//	Out   whatever a registry answers, by the start of the drain; included in the next
//	Then  after the acknowledgement of Want; nothing else releases hooks
type Decision struct {
	Row  Row
	Want Want
	Arm  Edit
	Out  Edit
	Then Edit
	// Waiting is the owned hook that OpenKruise waits for now, if any.
	Waiting  Hook
	Releases bool
}

// Edit changes a pod. It leaves out what the pod already has.
type Edit struct {
	Set        []Handler
	Clear      []Handler
	ClearMarks []string
	// ClearSkip removes [AnnotationSkip] if it has not changed.
	ClearSkip bool
	// AsRecorded refuses the edit if the record has changed: it rests on its drain.
	AsRecorded bool
}

// Empty reports whether the edit changes nothing.
func (e Edit) Empty() bool {
	return len(e.Set) == 0 && len(e.Clear) == 0 && len(e.ClearMarks) == 0 && !e.ClearSkip
}

// Decide applies the decision table. It is total and pure; once applied, deciding again changes nothing.
func Decide(in Input) Decision {
	d := rule(in)
	if d.Row != RowGone && d.Row != RowUnknownState {
		d.Then.Clear = union(d.Then.Clear, in.forgotten())
	}
	in.guard(&d)
	d.Arm = in.needed(d.Arm)
	d.Out = in.needed(d.Out)
	d.Then = in.needed(d.Then)
	d.Waiting = in.waiting(d.Row)
	d.Releases = in.releases(d)
	return d
}

func rule(in Input) Decision {
	d := table(in)
	if in.Blocked && d.Want == InService {
		return Decision{Row: d.Row, Want: Keep, Arm: d.Arm}
	}
	return d
}

// table returns full edits; Decide drops what the pod already has.
func table(in Input) Decision {
	h, ready := in.Hooks, in.Ready()
	if Ends(in.Pod) {
		return Decision{Row: RowGone, Want: Absent, Then: in.releaseAll()}
	}
	switch State(in.Pod) {
	case appspub.LifecycleStatePreparingDelete:
		return Decision{Row: RowPreparingDelete, Want: Absent, Out: Edit{Clear: without(h.PreNormal, h.PreDelete)},
			Then: Edit{Clear: union(h.PreDelete, h.PreNormal)}}
	case appspub.LifecycleStatePreparingUpdate:
		return Decision{Row: RowPreparingUpdate, Want: OutOfService, Out: h.out(),
			Then: Edit{Clear: union(h.InPlaceUpdate, h.out().Clear)}}
	case appspub.LifecycleStateUpdating:
		return Decision{Row: RowUpdating, Want: OutOfService, Arm: in.takenBack()}
	case appspub.LifecycleStateUpdated:
		if !ready {
			return Decision{Row: RowUpdatedNotReady, Want: OutOfService, Arm: in.takenBack()}
		}
		return Decision{Row: RowUpdated, Want: InService,
			Arm:  Edit{Set: without(h.PreDelete, h.InPlaceUpdate)},
			Then: Edit{Set: union(h.InPlaceUpdate, h.PreNormal)}}
	case appspub.LifecycleStatePreparingNormal:
		if !ready {
			return Decision{Row: RowPreparingNormalUnfit, Want: OutOfService, Out: h.out(), Then: h.out()}
		}
		return Decision{Row: RowPreparingNormal, Want: InService,
			Arm:  Edit{Set: without(union(h.PreDelete, h.InPlaceUpdate), h.PreNormal)},
			Then: Edit{Set: union(h.PreNormal, h.PreDelete, h.InPlaceUpdate), ClearMarks: in.Ownership.NewlyCreated}}
	case appspub.LifecycleStateNormal:
		if !ready {
			return in.notReady()
		}
		return Decision{Row: RowNormal, Want: InService,
			Arm:  Edit{Set: union(h.PreDelete, h.InPlaceUpdate)},
			Then: Edit{Set: h.PreNormal, ClearMarks: in.Ownership.NewlyCreated}}
	default:
		return Decision{Row: RowUnknownState, Want: Keep}
	}
}

// out: if its deletion is cancelled, a pod without preNormal waits until it is back. Clearing another hook's key would release that hook.
func (h Hooks) out() Edit {
	return Edit{Clear: without(h.PreNormal, union(h.PreDelete, h.InPlaceUpdate))}
}

// takenBack repairs the handlers after OpenKruise has applied a new template in the write that begins Updating:
//
//	handler added    clear it: with all of inPlaceUpdate the pod would count as back
//	handler removed  set it, if preDelete's: the pod may still be in rotation
//
// https://github.com/openkruise/kruise/blob/v1.8.3/pkg/util/inplaceupdate/inplace_update_defaults.go
func (in Input) takenBack() Edit {
	edit := Edit{Clear: union(in.Hooks.InPlaceUpdate, without(in.Hooks.PreNormal, in.Hooks.PreDelete))}
	if in.Record.Want == InService {
		edit.Set = without(in.Hooks.PreDelete, union(in.Hooks.InPlaceUpdate, in.Hooks.PreNormal))
	}
	return edit
}

// notReady arms a pod that is kept: it may be in rotation. A pod that ends would serve nobody.
func (in Input) notReady() Decision {
	if in.Ending != "" || !in.KeepUnready {
		return Decision{Row: RowNormalNotReady, Want: OutOfService}
	}
	return Decision{Row: RowNormalNotReady, Want: Keep, Arm: Edit{Set: union(in.Hooks.PreDelete, in.Hooks.InPlaceUpdate)}}
}

// releaseAll leaves the labels of a pod that is being deleted: they don't hold it, and would cost a write per pod.
func (in Input) releaseAll() Edit {
	var finalizers []Handler
	for _, f := range in.Pod.Finalizers {
		if in.Ownership.Owns(f) {
			finalizers = append(finalizers, Handler{Finalizer: f})
		}
	}
	if in.Pod.DeletionTimestamp != nil {
		return Edit{Clear: union(finalizers)}
	}
	return Edit{Clear: union(finalizers, in.Hooks.all(), in.forgotten())}
}

// forgotten are owned handlers in the record that the workload no longer has.
func (in Input) forgotten() []Handler {
	return filter(in.Record.Handlers, func(h Handler) bool {
		return in.Ownership.Owns(h.Key()) && !in.Hooks.names(h) && !in.Hooks.keeps(h.Label)
	})
}

func (in Input) needed(e Edit) Edit {
	return Edit{
		Set:   filter(e.Set, func(h Handler) bool { return !h.SetOn(in.Pod) }),
		Clear: filter(e.Clear, func(h Handler) bool { return h.SetOn(in.Pod) }),
		ClearMarks: slices.DeleteFunc(slices.Clone(e.ClearMarks), func(key string) bool {
			return !marked(in.Pod, key) || in.Hooks.keeps(key)
		}),
	}
}

func (in Input) waiting(row Row) Hook {
	switch row {
	case RowGone:
		return in.waitingGone()
	case RowPreparingDelete:
		return in.waitingWhile(PreDelete, true)
	case RowPreparingUpdate:
		return in.waitingWhile(InPlaceUpdate, true)
	case RowUpdatedNotReady, RowUpdated:
		return in.waitingWhile(InPlaceUpdate, false)
	case RowPreparingNormalUnfit, RowPreparingNormal:
		return in.waitingWhile(PreNormal, false)
	case RowUpdating, RowNormal, RowNormalNotReady, RowUnknownState:
	}
	return ""
}

// waitingGone is the hook at which OpenKruise or the API server waits for a pod that ends. OpenKruise waits in two states: in any other
// it takes a pod that has ended without asking, or asks later.
func (in Input) waitingGone() Hook {
	switch {
	case !guarded(in.Pod) && in.needed(in.releaseAll()).Empty():
		return ""
	case in.Pod.DeletionTimestamp != nil:
		return PreDelete
	case State(in.Pod) == appspub.LifecycleStatePreparingDelete:
		return in.waitingWhile(PreDelete, true)
	case State(in.Pod) == appspub.LifecycleStatePreparingUpdate:
		return in.waitingWhile(InPlaceUpdate, true)
	default:
		return PreDelete
	}
}

func (in Input) waitingWhile(hook Hook, set bool) Hook {
	if slices.ContainsFunc(in.Hooks.withRefused(hook), func(h Handler) bool { return h.SetOn(in.Pod) == set }) {
		return hook
	}
	return ""
}

// releases: from row 4 on, hooks wait for the pod to be in rotation. Refused handlers stay.
func (in Input) releases(d Decision) bool {
	released := func(h Handler) bool { return slices.Contains(d.Then.Clear, h) }
	switch d.Row {
	case RowGone:
		return d.Waiting != ""
	case RowPreparingDelete:
		return slices.ContainsFunc(in.Hooks.PreDelete, released)
	case RowPreparingUpdate:
		return slices.ContainsFunc(in.Hooks.InPlaceUpdate, released)
	default:
		return false
	}
}

// Managed reports whether the workload has an owned handler, or the pod any trace of Rollcall.
func (in Input) Managed() bool {
	if in.Hooks.Any() || in.Record.Exists() {
		return true
	}
	return in.Ownership.Holds(in.Pod) || slices.ContainsFunc(in.Ownership.NewlyCreated, func(key string) bool { return marked(in.Pod, key) })
}

// Released reports whether OpenKruise, or a person if the workload is gone, moves next in PreparingUpdate or PreparingDelete.
func (in Input) Released(d Decision) bool {
	at := State(in.Pod)
	return d.Waiting == "" && in.Pod.DeletionTimestamp == nil &&
		(at == appspub.LifecycleStatePreparingUpdate || at == appspub.LifecycleStatePreparingDelete)
}
