package lifecycle

import (
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// Want is what the registry must say about a pod's instances.
type Want string

// What the registry must say. Keep leaves the entry as it is now.
const (
	Keep         Want = "Keep"
	InService    Want = "InService"
	OutOfService Want = "OutOfService"
	Absent       Want = "Absent"
)

// Row is the row of the decision table that applies, numbered as in docs/decision-table.md.
type Row int

// The rows, first match first.
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

// Serves reports whether a pod in this row must be in service.
func (r Row) Serves() bool { return r == RowUpdated || r == RowPreparingNormal || r == RowNormal }

// Drains reports whether a drain counts in this row. kubelet does not wait with a pod that is being deleted already.
func (r Row) Drains() bool { return r == RowPreparingDelete || r == RowPreparingUpdate }

// Input is all that a decision rests on.
type Input struct {
	Pod       *corev1.Pod
	Hooks     Hooks
	Record    Record
	Ownership Ownership
	// Unready is the policy for a pod in Normal that is not ready.
	Unready UnreadyPolicy
	// Panic reports that too many pods of one of its services are not ready at once; see [Peers.Panic].
	Panic bool
	// Ending is why the pod has to be out of rotation by now since it ends for certain, see [End.Ending]; empty where it need not be.
	Ending string
	// NodeLost reports that the pod's node is not Ready; see [NodeLost].
	NodeLost bool
	// Guard is what becomes of the [GuardFinalizer].
	Guard Guard
	// Blocked reports that the pod's description keeps it from being put in service. The pod then stays where it is.
	Blocked bool
}

// Decision says what the registry must say and what follows.
type Decision struct {
	Row  Row
	Want Want
	// Arm is written before any call: the guard, and the hooks without which Kruise would update or delete a pod that is
	// in rotation without waiting. It clears a guard that is no longer wanted and, of a pod that is out, what would make
	// Kruise take it for one that is back. It releases no hook.
	Arm Edit
	// Out is the part of Then that is written as soon as a registry was asked to take the pod out, whatever it answered: at
	// the latest with the write that begins the drain. It releases no hook.
	Out Edit
	// Then is written once the registry has acknowledged Want, and only then.
	Then Edit
	// Waiting is the hook that Kruise waits for now because of an owned handler; empty where it waits for none.
	Waiting Hook
	// Releases reports that Then releases a handler of Waiting.
	Releases bool
}

// Edit is a change of a pod's handlers. It holds only what differs from the pod as it was decided on.
type Edit struct {
	Set   []Handler
	Clear []Handler
	// ClearMarks are keys of newly-created marks, as labels or annotations.
	ClearMarks []string
	// ClearSkip removes [AnnotationSkip] as it stands on the pod.
	ClearSkip bool
	// AsRecorded has nothing written to a pod with another record: the edit rests on what the record says of a drain.
	AsRecorded bool
}

// Empty reports whether the edit changes nothing.
func (e Edit) Empty() bool {
	return len(e.Set) == 0 && len(e.Clear) == 0 && len(e.ClearMarks) == 0 && !e.ClearSkip
}

// Decide returns what the registry must say about the pod as it is now, and what may follow. It is total and pure.
// Deciding again after the decision was applied changes nothing.
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

// rule applies the decision table, and leaves a pod that is blocked where it is: it is armed, and nothing follows.
func rule(in Input) Decision {
	d := table(in)
	if in.Blocked && d.Want == InService {
		return Decision{Row: d.Row, Want: Keep, Arm: d.Arm}
	}
	return d
}

// table is the decision table. It returns full edits; Decide leaves out what the pod already has.
func table(in Input) Decision {
	h, ready := in.Hooks, in.Ready()
	// A pod that is out loses preNormal first, so that Kruise waits again until it is back in if its deletion is cancelled.
	// A key that another hook has too stays, because Kruise goes on without it.
	out := Edit{Clear: without(h.PreNormal, union(h.PreDelete, h.InPlaceUpdate))}
	if Ends(in.Pod) {
		return Decision{Row: RowGone, Want: Absent, Then: in.releaseAll()}
	}
	switch State(in.Pod) {
	case appspub.LifecycleStatePreparingDelete:
		return Decision{Row: RowPreparingDelete, Want: Absent, Out: Edit{Clear: without(h.PreNormal, h.PreDelete)},
			Then: Edit{Clear: union(h.PreDelete, h.PreNormal)}}
	case appspub.LifecycleStatePreparingUpdate:
		return Decision{Row: RowPreparingUpdate, Want: OutOfService, Out: out,
			Then: Edit{Clear: union(h.InPlaceUpdate, out.Clear)}}
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
			return Decision{Row: RowPreparingNormalUnfit, Want: OutOfService, Out: out, Then: out}
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

// takenBack is for a pod that is updated in place: with all handlers of inPlaceUpdate it would count as back in service. OpenKruise itself
// sets those that the new template has and the old one lacks, in the write that begins Updating.
// It takes away those that the old template has and the new one lacks: a pod that came here in rotation is armed until it is out.
// https://github.com/openkruise/kruise/blob/v1.8.3/pkg/util/inplaceupdate/inplace_update_defaults.go
func (in Input) takenBack() Edit {
	edit := Edit{Clear: union(in.Hooks.InPlaceUpdate, without(in.Hooks.PreNormal, in.Hooks.PreDelete))}
	if in.Record.Want == InService {
		edit.Set = without(in.Hooks.PreDelete, union(in.Hooks.InPlaceUpdate, in.Hooks.PreNormal))
	}
	return edit
}

// notReady is for a pod that is Normal and not ready. One that is kept is armed: it may be in service. One that ends is not kept:
// it will serve nobody, whatever that leaves clients with.
func (in Input) notReady() Decision {
	if in.Ending != "" || in.Unready == UnreadyFailOver && !in.Panic {
		return Decision{Row: RowNormalNotReady, Want: OutOfService}
	}
	return Decision{Row: RowNormalNotReady, Want: Keep, Arm: Edit{Set: union(in.Hooks.PreDelete, in.Hooks.InPlaceUpdate)}}
}

// releaseAll is for a pod that ends: no owned handler may hold it, whether a workload names it or not. Only finalizers
// hold a pod that is being deleted, so its labels stay, which saves a write for each pod that a rollout deletes.
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

// forgotten are the handlers that the record names, that the configuration still owns, and that no hook of the workload
// names any more.
func (in Input) forgotten() []Handler {
	return filter(in.Record.Handlers, func(h Handler) bool {
		return in.Ownership.Owns(h.Key()) && !in.Hooks.names(h) && !in.Hooks.kept[h.Label]
	})
}

// needed leaves out of an edit what the pod already has.
func (in Input) needed(e Edit) Edit {
	return Edit{
		Set:   filter(e.Set, func(h Handler) bool { return !h.SetOn(in.Pod) }),
		Clear: filter(e.Clear, func(h Handler) bool { return h.SetOn(in.Pod) }),
		ClearMarks: slices.DeleteFunc(slices.Clone(e.ClearMarks), func(key string) bool {
			return !marked(in.Pod, key) || in.Hooks.kept[key]
		}),
	}
}

func (in Input) waiting(row Row) Hook {
	switch row {
	case RowGone:
		if in.held() {
			return PreDelete
		}
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

// waitingWhile returns the hook where one of its handlers is set, or is not.
func (in Input) waitingWhile(hook Hook, set bool) Hook {
	if slices.ContainsFunc(in.named(hook), func(h Handler) bool { return h.SetOn(in.Pod) == set }) {
		return hook
	}
	return ""
}

// releases reports whether a hook that Kruise waits for is released. In the other rows a pod waits to be in service, and a
// handler that was refused stays as it is.
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

// held reports whether an owned finalizer holds a pod that ends.
func (in Input) held() bool { return guarded(in.Pod) || !in.needed(in.releaseAll()).Empty() }

// named are the owned handlers of a hook, the refused ones included: Kruise waits for those too.
func (in Input) named(hook Hook) []Handler {
	accepted := map[Hook][]Handler{
		PreNormal: in.Hooks.PreNormal, InPlaceUpdate: in.Hooks.InPlaceUpdate, PreDelete: in.Hooks.PreDelete,
	}[hook]
	accepted = slices.Clip(accepted)
	for _, r := range in.Hooks.Refused {
		if r.Hook == hook {
			accepted = append(accepted, r.Handler)
		}
	}
	return accepted
}

// Managed reports whether Rollcall manages the pod: its workload names an owned handler, or the pod carries a
// newly-created mark, a record or an owned finalizer, the guard included.
func (in Input) Managed() bool {
	if in.Hooks.Any() || in.Record.Exists() {
		return true
	}
	return in.HasFinalizer() || slices.ContainsFunc(in.Ownership.NewlyCreated, func(key string) bool { return marked(in.Pod, key) })
}

// HasFinalizer reports whether the pod carries a finalizer that Rollcall has to remove once the pod ends.
func (in Input) HasFinalizer() bool {
	return guarded(in.Pod) || slices.ContainsFunc(in.Pod.Finalizers, in.Ownership.Owns)
}

// Released reports whether no handler of Rollcall's holds the pod any more where OpenKruise waits before it updates or deletes
// one: the next move is OpenKruise's, or a person's if its workload is gone.
func (in Input) Released(d Decision) bool {
	at := State(in.Pod)
	return d.Waiting == "" && in.Pod.DeletionTimestamp == nil &&
		(at == appspub.LifecycleStatePreparingUpdate || at == appspub.LifecycleStatePreparingDelete)
}
