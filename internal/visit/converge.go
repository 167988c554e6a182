package visit

import (
	"context"
	"fmt"
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

// firstPause is how soon, at the least, something is looked at again that fails.
const firstPause = 100 * time.Millisecond

// WokenRecheck is for a pod that waits for a slot and is not woken, which would be an error of Rollcall's.
const WokenRecheck = time.Minute

// manyChanges are made at once, and those of several registries: one after the other takes long, above all where one does not answer.
const manyChanges = 8

// ensureAll makes all changes. What is missing in one registry keeps the pod out of no other.
func (v *visit) ensureAll(ctx context.Context, changes []plan.Row) waiting.Blocker {
	each := make([]waiting.Blocker, len(changes))
	var calls sync.WaitGroup
	alike := !slices.ContainsFunc(changes, func(c plan.Row) bool { return c.Key().Source() != changes[0].Key().Source() })
	for i, c := range changes {
		if alike && len(changes) < manyChanges {
			each[i] = v.ensure(ctx, c)
			continue
		}
		calls.Go(func() { each[i] = v.ensure(ctx, c) })
	}
	calls.Wait()
	return waiting.First(each...)
}

// ensure returns no blocker once the registry is known to say what is wanted of one instance.
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

// agree takes the steps of an instance until nothing is left to do, or it has to wait.
func (v *visit) agree(ctx context.Context, c plan.Row) waiting.Blocker {
	in, goal := c.Key(), v.Goal(c)
	v.Tracked.RecallRemoval(in, c.OutSince)
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

// agreed is called once nothing is left to do about an instance.
func (v *visit) agreed(c plan.Row) {
	v.Tracked.GivenNoMore(c.Key(), v.Clock.Now())
	v.lookForSeveral(c)
	if c.Want == lifecycle.Absent {
		v.State.Claims.Removed(v.pod().UID, c.Key(), v.Clock.Now())
	}
}

// waitsFor says what an instance waits for.
func (v *visit) waitsFor(c plan.Row, goal tracker.Goal, step tracker.Step) waiting.Blocker {
	switch step.Cause {
	case tracker.Postponed:
		return waiting.Blocker{Reason: step.Said.Reason, Message: step.Said.Message, After: step.After}
	case tracker.Settling:
		return waiting.Blocker{Reason: reason.Settling, After: max(step.After, firstPause),
			Message: c.String() + ": an earlier call failed, and may still be carried out"}
	case tracker.GivenByAnother:
		return v.alsoRegistersItself(c, "its list has an entry of another writer")
	case tracker.Unseen:
		v.Tracked.GivenNoMore(c.Key(), v.Clock.Now())
		return v.awaitsApp(c, waiting.Blocker{Message: c.String() + ": the registry has no such entry and never showed one, so " +
			"clients may be given the pod by an entry at another address"}, nil)
	default:
		return waiting.Blocker{Reason: reason.NotConfirmed, After: v.backOff(), Message: fmt.Sprintf(
			"%s: the registry has acknowledged that it is %s, and says %s", c, c.Want, goal.Said)}
	}
}
