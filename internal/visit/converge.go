package visit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// firstPause is the shortest wait after a failure.
const firstPause = 100 * time.Millisecond

// WokenRecheck is the fallback if a waiting pod is not woken.
const WokenRecheck = time.Minute

// manyChanges are made in parallel, as are those of several registries: one that hangs must not delay the others.
const manyChanges = 8

// ensureAll makes all changes, whichever of them fail.
func (v *visit) ensureAll(ctx context.Context, changes []plan.Row) waiting.Blocker {
	alike := !slices.ContainsFunc(changes, func(c plan.Row) bool { return c.Key().Source() != changes[0].Key().Source() })
	if alike && len(changes) < manyChanges {
		var missing waiting.Blocker
		for _, c := range changes {
			missing = waiting.First(missing, v.ensure(ctx, c))
		}
		return missing
	}
	each := make([]waiting.Blocker, len(changes))
	var calls sync.WaitGroup
	for i, c := range changes {
		calls.Go(func() { each[i] = v.ensure(ctx, c) })
	}
	calls.Wait()
	return waiting.First(each...)
}

// ensure returns what is missing until the registry says what the row wants.
func (v *visit) ensure(ctx context.Context, c plan.Row) waiting.Blocker {
	switch {
	case c.NeverThere && !(v.decision.Releases && v.Goal(c).Given): // whoever else gives it to clients
		return waiting.Blocker{}
	case c.PassedOn:
		if now := v.Clock.Now(); v.Tracked.PassedOn(c.Key(), now) {
			v.told(c.Target, registry.Absent, now)
		}
		return waiting.Blocker{}
	case c.ByApp() && v.Gone():
		return v.clear(ctx, c)
	}
	missing := v.agree(ctx, c)
	if (missing.Reason.OfApp() || missing.Reason == reason.DryRun) && c.ByApp() && v.belongs(c) {
		return v.lookElsewhere(ctx, c, missing)
	}
	return missing
}

// agree takes an entry's steps ([tracker.Instance.Next]) until there is none, or it has to wait.
func (v *visit) agree(ctx context.Context, c plan.Row) waiting.Blocker {
	in, goal := c.Key(), v.Goal(c)
	v.Tracked.RecallRemoval(in, c.OutSince, v.Ahead())
	for {
		if c.Want == lifecycle.Absent {
			v.Tracked.LetGo(in) // whether the registry can be asked or not
		}
		var missing waiting.Blocker
		switch step := v.Tracked.Standing(in).Next(goal, v.Clock.Now()); step.Act {
		case tracker.Change:
			missing = v.call(ctx, c)
		case tracker.Ask:
			missing = v.ask(ctx, c, &goal)
		case tracker.Wait:
			return v.waitsFor(c, goal, step)
		default:
			v.agreed(c)
			return waiting.Blocker{}
		}
		if missing.Reason != "" {
			return missing
		}
	}
}

// agreed cleans up after the last step.
func (v *visit) agreed(c plan.Row) {
	v.Tracked.GivenNoMore(c.Key(), v.Clock.Now())
	v.lookForSeveral(c)
	if c.Want == lifecycle.Absent {
		v.State.Claims.Removed(v.pod().UID, c.Key(), v.Clock.Now())
	}
}

func (v *visit) waitsFor(c plan.Row, goal tracker.Goal, step tracker.Step) waiting.Blocker {
	switch step.Cause {
	case tracker.Postponed:
		return waiting.Blocker{Reason: step.Said.Reason, Message: step.Said.Message, After: step.After}
	case tracker.Settling:
		return waiting.Settling(c, max(step.After, firstPause))
	case tracker.GivenByAnother:
		return v.alsoRegistersItself(c, "its list has an entry of another writer")
	case tracker.Unseen:
		v.Tracked.GivenNoMore(c.Key(), v.Clock.Now())
		return v.awaitsApp(c, waiting.AppUnseen(c), nil)
	default:
		return waiting.NotConfirmed(c, c.Want, goal.Said, v.backOff())
	}
}
