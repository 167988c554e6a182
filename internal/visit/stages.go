package visit

import (
	"context"
	"errors"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

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
	case v.decision.Want == want: // else it has moved on, and the next visit shows where to
		if err := v.conclude(ctx); err != nil {
			return err
		}
	}
	return v.showRotation(ctx)
}

// arm writes what needs no registry, and removes a skip annotation that came with the template.
func (v *visit) arm(ctx context.Context) error {
	arm, before := v.decision.Arm, v.input
	arm.ClearSkip = v.facts.Skip.FromTemplate && v.pod().DeletionTimestamp == nil
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
	v.rows, v.held, v.behind, v.joining = plan.Of(v.plan(), v.decision), nil, nil, waiting.Blocker{}
	if v.decision.Want == lifecycle.Keep && armed {
		v.facts.Tracked.Stay(v.plan().Has)
	}
	for _, s := range plan.Stages(v.rows, v.decision.Want) {
		if s.Armed && !armed || s.After && len(v.held) > 0 {
			continue
		}
		missing, err := v.take(ctx, s)
		switch {
		case err != nil:
			return err
		case missing.Reason == "":
		case s.Holds:
			v.held = append(v.held, missing)
		default:
			v.behind = append(v.behind, missing)
		}
	}
	return nil
}

// take carries out one stage, and returns what is missing.
func (v *visit) take(ctx context.Context, s plan.Stage) (missing waiting.Blocker, err error) {
	now := plan.Now{Facts: v.plan(), Decision: v.decision, Rows: v.rows, Time: v.Clock.Now()}
	if s.Waits != nil {
		missing = s.Waits(now)
	}
	if s.Probes != nil && missing.Reason == "" {
		missing = v.probe(ctx, s.Probes(now))
	}
	if missing.Reason == "" {
		missing = v.bring(ctx, s.Rows)
	}
	if missing.BacksOff {
		missing.After = v.backOff()
	}
	if s.Joins {
		v.joins(missing)
	}
	if s.Writes {
		err = v.assert(ctx)
	}
	return missing, err
}

// joins notes what keeps the pod from being in rotation. If nothing does, it forgets what was taken out by other keys of what may be the
// same entries: they are in rotation again.
func (v *visit) joins(missing waiting.Blocker) {
	v.joining = missing
	if missing.Reason != "" {
		return
	}
	entries := v.plan()
	for in := range entries.Known.All() {
		if !entries.IsTarget(in) && entries.MayBeTargets(in) {
			v.facts.Tracked.Forget(in, v.Clock.Now())
		}
	}
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
	entries := v.plan()
	v.targets = slices.Clone(v.targets) // the facts keep theirs
	for i, t := range v.targets {
		v.targets[i].Instance.Address = entries.LastFound(t.Key()).Address
	}
	return true
}
