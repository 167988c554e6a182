package visit

import (
	"context"
	"errors"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// stage is one part of a visit. It returns what is missing, if anything is.
type stage struct {
	name string
	take func(v *visit, ctx context.Context) waiting.Blocker
	// write is of a stage that makes no call.
	write func(v *visit, ctx context.Context) error
	// holds: what the stage misses holds the hook that OpenKruise waits for.
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
	former := stage{name: "former", take: (*visit).leaveFormer}
	depart := stage{name: "depart", take: (*visit).depart, waits: true, armed: true}
	switch want {
	case lifecycle.InService:
		return []stage{
			former,
			{name: "join", take: (*visit).join, holds: true, armed: true},
			{name: "probe", take: (*visit).probe, holds: true, waits: true, armed: true},
			{name: "readers", take: (*visit).awaitReaders, holds: true, waits: true, armed: true},
			{name: "assert", write: (*visit).assert, waits: true, armed: true},
			depart,
		}
	case lifecycle.Keep:
		return []stage{former, depart}
	default:
		former.holds = true
		return []stage{
			former,
			// An application's own entry may show only once Rollcall's, at the same place, is gone.
			{name: "departing", take: (*visit).leaveDeparting, holds: true},
			{name: "leave", take: (*visit).leavePresent, holds: true},
			{name: "unsteered", take: (*visit).unsteered, holds: true},
			{name: "listed", take: (*visit).unlisted, holds: true},
			{name: "remember", take: (*visit).remember},
			{name: "drain", take: (*visit).drain, holds: true, waits: true},
		}
	}
}

// advance takes the pod as far as it can go now. One that Rollcall does not drive is left as it is, but for handlers that no
// workload names any more.
func (v *visit) advance(ctx context.Context) error {
	v.refuseSkip()
	v.warnOfBrought()
	if refused := v.refused(); refused.Reason != "" {
		v.held = []waiting.Blocker{refused}
		return v.patch(ctx, lifecycle.Edit{Clear: v.decision.Then.Clear}, nil)
	}
	unarmed := v.arm(ctx)
	if errors.Is(unarmed, ErrMoved) {
		return unarmed
	}
	want := v.decision.Want
	for range 2 { // once more where an application's entry was found elsewhere
		if err := v.takeStages(ctx, unarmed == nil); err != nil {
			return err
		}
		if !v.relocate() {
			break
		}
	}
	switch {
	case unarmed != nil:
		v.held, v.behind = nil, slices.Concat(v.held, v.behind)
		return unarmed
	case v.decision.Want == want: // else it has moved on, and the next look at it says where to
		if err := v.conclude(ctx); err != nil {
			return err
		}
	}
	return v.showRotation(ctx)
}

// arm writes what does not wait for a registry. An annotation to skip a hook that came with the template goes too.
func (v *visit) arm(ctx context.Context) error {
	arm, before := v.decision.Arm, v.input
	arm.ClearSkip = v.Skip.FromTemplate && v.pod().DeletionTimestamp == nil
	if err := v.patch(ctx, arm, nil); err != nil {
		return err
	}
	if before.ChangedBeside(arm, v.pod()) {
		return ErrMoved // what the targets were made from may be what was changed
	}
	return nil
}

// takeStages takes those that can be taken. The API server may refuse to arm a pod, or fail to, for long: another pod gets a former
// address meanwhile, and clients are given a pod that has to be out.
func (v *visit) takeStages(ctx context.Context, armed bool) error {
	v.rows, v.held, v.behind, v.record = plan.Of(v.entries(), v.decision), nil, nil, nil
	if v.decision.Want == lifecycle.Keep && armed {
		v.Tracked.Stay(v.pod().Status.PodIP)
	}
	for _, s := range stagesOf(v.decision.Want) {
		if s.armed && !armed || s.waits && len(v.held) > 0 {
			continue
		}
		missing, err := s.run(ctx, v)
		switch {
		case err != nil:
			return err
		case missing.Reason == "":
		case s.holds:
			v.held = append(v.held, missing)
		default:
			v.behind = append(v.behind, missing)
		}
	}
	return nil
}

func (s stage) run(ctx context.Context, v *visit) (waiting.Blocker, error) {
	if s.write != nil {
		return waiting.Blocker{}, s.write(v, ctx)
	}
	return s.take(v, ctx), nil
}

// assert writes the hook that waits for the pod to be in service, if one does.
func (v *visit) assert(ctx context.Context) error {
	if v.decision.Waiting == "" {
		return nil
	}
	return v.conclude(ctx)
}

// relocate has the targets follow the applications' entries that were found at other addresses than expected; false where none was.
func (v *visit) relocate() bool {
	if !v.relocated.Swap(false) {
		return false
	}
	entries := v.entries()
	v.targets = slices.Clone(v.targets) // the facts keep theirs
	for i, t := range v.targets {
		v.targets[i].Instance.Address = entries.PlaceOf(t.Key()).Address
	}
	return true
}
