package controller

import (
	"context"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// visit is one look at a pod: what it rests on, and how far it has come.
type visit struct {
	*observation

	// changes are those that the decision takes.
	changes plan.Plan
	// held is what is missing before OpenKruise may go on, and behind what is missing besides.
	held, behind []notes.Blocker
	// record is what to write down; nil leaves the record as it is.
	record *lifecycle.Record
}

// done reports whether OpenKruise may go on: the registries have acknowledged everything, and the drain has passed. In a dry
// run nothing was acknowledged, and what would follow is said too, since nothing is written.
func (v *visit) done() bool {
	return !slices.ContainsFunc(v.held, func(b notes.Blocker) bool { return b.Reason != reason.DryRun })
}

// stage is one part of a visit. It returns what is missing, if anything is.
type stage struct {
	name string
	take func(r *PodReconciler, ctx context.Context, v *visit) notes.Blocker
	// writes: the stage writes the hook that waits, if one does, in place of making calls.
	writes bool
	// holds: what the stage misses holds that hook.
	holds bool
	// waits: the stage begins only once nothing holds that hook.
	waits bool
	// armed: the stage is left out where the handlers could not be written that its calls need on the pod.
	armed bool
}

// stagesOf are the stages by what the registry must say, in their order. The patch that writes hooks and record follows them.
//
// A pod that joins is registered, then clients are given it, then the hook that waits for it is asserted, and only then does it leave
// where it departs from: nothing that can't leave holds such a hook. A pod that leaves does so everywhere, and then drains.
func stagesOf(want lifecycle.Want) []stage {
	former := stage{name: "former", take: (*PodReconciler).leaveFormer}
	depart := stage{name: "depart", take: (*PodReconciler).depart, waits: true, armed: true}
	switch want {
	case lifecycle.InService:
		return []stage{
			former,
			{name: "join", take: (*PodReconciler).join, holds: true, armed: true},
			{name: "probe", take: (*PodReconciler).probe, holds: true, waits: true, armed: true},
			{name: "readers", take: (*PodReconciler).awaitReaders, holds: true, waits: true, armed: true},
			{name: "assert", writes: true, waits: true, armed: true},
			depart,
		}
	case lifecycle.Keep:
		return []stage{former, depart}
	default:
		former.holds = true
		return []stage{
			former,
			// An application's own entry may show only once Rollcall's, at the same place, is gone.
			{name: "departing", take: (*PodReconciler).leaveDeparting, holds: true},
			{name: "leave", take: (*PodReconciler).leavePresent, holds: true},
			{name: "listed", take: (*PodReconciler).unlisted, holds: true},
			{name: "remember", take: (*PodReconciler).remember},
			{name: "drain", take: (*PodReconciler).drain, holds: true, waits: true},
		}
	}
}

// advance takes the pod as far as it can go now. One that Rollcall does not drive is left as it is, but for handlers that no
// workload names any more.
func (r *PodReconciler) advance(ctx context.Context, v *visit) error {
	r.refuseSkip(v.observation)
	r.warnOfBrought(v.observation)
	if refused := v.refused(); refused.Reason != "" {
		v.held = []notes.Blocker{refused}
		return r.patch(ctx, v.observation, lifecycle.Edit{Clear: v.decision.Then.Clear}, nil)
	}
	unarmed := r.arm(ctx, v)
	if isMoved(unarmed) {
		return unarmed
	}
	want := v.decision.Want
	for relocates := true; relocates; relocates = v.relocate() {
		if err := r.takeStages(ctx, v, unarmed == nil); err != nil {
			return err
		}
	}
	switch {
	case unarmed != nil:
		v.held, v.behind = nil, slices.Concat(v.held, v.behind)
		return unarmed
	case v.decision.Want == want: // else it has moved on, and the next look at it says where to
		if err := r.conclude(ctx, v); err != nil {
			return err
		}
	}
	return r.showRotation(ctx, v.observation)
}

// arm writes what does not wait for a registry. An annotation to skip a hook that came with the template goes too.
func (r *PodReconciler) arm(ctx context.Context, v *visit) error {
	arm, before := v.decision.Arm, v.input
	arm.ClearSkip = v.skip.FromTemplate && v.pod().DeletionTimestamp == nil
	if err := r.patch(ctx, v.observation, arm, nil); err != nil {
		return err
	}
	if before.ChangedBeside(arm, v.pod()) {
		return errMoved // what the targets were made from may be what was changed
	}
	return nil
}

// takeStages takes those that can be taken. The API server may refuse to arm a pod, or fail to, for long: another pod gets a former
// address meanwhile, and clients are given a pod that has to be out.
func (r *PodReconciler) takeStages(ctx context.Context, v *visit, armed bool) error {
	v.changes, v.held, v.behind, v.record = plan.Of(v.facts(), v.decision), nil, nil, nil
	if v.decision.Want == lifecycle.Keep && armed {
		v.tracked.Stay(v.pod().Status.PodIP)
	}
	for _, s := range stagesOf(v.decision.Want) {
		if s.armed && !armed || s.waits && len(v.held) > 0 {
			continue
		}
		if s.writes {
			if v.decision.Waiting == "" {
				continue
			}
			if err := r.conclude(ctx, v); err != nil {
				return err
			}
			continue
		}
		missing := s.take(r, ctx, v)
		switch {
		case missing.Reason == "":
		case s.holds:
			v.held = append(v.held, missing)
		default:
			v.behind = append(v.behind, missing)
		}
	}
	return nil
}

// relocate has the targets follow the applications' entries that were found at other addresses than expected; false where none was.
func (v *visit) relocate() bool {
	if !v.relocated.Swap(false) {
		return false
	}
	facts := v.facts()
	for i, t := range v.targets {
		v.targets[i].Instance.Address = facts.PlaceOf(t.Key()).Address
	}
	return true
}
