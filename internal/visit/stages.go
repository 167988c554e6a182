package visit

import (
	"context"
	"errors"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// stage is a part of a visit. It returns what is missing.
type stage struct {
	name string
	take func(v *visit, ctx context.Context) waiting.Blocker
	// write is set in place of take if the stage makes no call.
	write func(v *visit, ctx context.Context) error
	// holds: OpenKruise waits for what this stage misses.
	holds bool
	// waits: it is skipped while OpenKruise waits for an earlier stage.
	waits bool
	// armed: it is skipped if the API server refused the handlers that protect its calls.
	armed bool
}

// stagesOf returns the stages in their order. For example, a pod that moves from Consul to Nacos: join registers it in Nacos, probe and
// readers wait until clients are given it there, assert lets OpenKruise count on it, and only then depart takes it out of Consul. So
// a Consul that is down holds no new pod.
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
			{name: "unheard", take: (*visit).unheard},
		}
	case lifecycle.Keep:
		return []stage{former, depart, {name: "unheard", take: (*visit).unheard}}
	default:
		former.holds = true
		return []stage{
			former,
			// First, since the application's own entry at the same endpoint may show only once Rollcall's is gone.
			{name: "departing", take: (*visit).leaveDeparting, holds: true},
			{name: "leave", take: (*visit).leavePresent, holds: true},
			{name: "unheard", take: (*visit).unheard, holds: true},
			{name: "unsteered", take: (*visit).unsteered, holds: true},
			{name: "listed", take: (*visit).unlisted, holds: true},
		}
	}
}

// advance takes the stages between arming the pod and concluding. A pod that Rollcall does not drive only loses handlers that no
// workload has any more.
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

// arm writes what needs no registry, and removes a skip annotation that came with the template.
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

// takeStages takes all stages that can be taken. Some are even if the API server refuses to arm the pod: its former address may be
// another pod's, and a deleted pod may be given to clients.
func (v *visit) takeStages(ctx context.Context, armed bool) error {
	v.rows, v.held, v.behind, v.joining = plan.Of(v.entries(), v.decision), nil, nil, waiting.Blocker{}
	if v.decision.Want == lifecycle.Keep && armed {
		v.Tracked.Stay(v.entries().Has)
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

// assert writes preNormal or inPlaceUpdate, if OpenKruise waits for it.
func (v *visit) assert(ctx context.Context) error {
	if v.decision.Waiting == "" {
		return nil
	}
	return v.conclude(ctx)
}

// relocate moves the targets to the addresses where applications' entries were found. It reports whether there were any.
func (v *visit) relocate() bool {
	if !v.relocated.Swap(false) {
		return false
	}
	entries := v.entries()
	v.targets = slices.Clone(v.targets) // the facts keep theirs
	for i, t := range v.targets {
		v.targets[i].Instance.Address = entries.LastFound(t.Key()).Address
	}
	return true
}
