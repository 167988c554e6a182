package visit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// firstPause is the shortest wait after a failure.
const firstPause = 100 * time.Millisecond

// WokenRecheck is the fallback if a waiting pod is not woken.
const WokenRecheck = time.Minute

// manyChanges are made in parallel, as are those of several registries: one that hangs must not delay the others.
const manyChanges = 8

// entry is a row while it is brought to rest, or asked about.
type entry struct {
	*moment
	plan.Row

	in     lifecycle.Key
	client *registryclient.Client // nil if the configuration lacks the registry
}

func (m *moment) of(row plan.Row) *entry {
	in := row.Key()
	return &entry{moment: m, Row: row, in: in, client: m.facts.Settings.Client(in.Source())}
}

// bring brings all rows to rest, whichever of them fail, and returns what is missing.
func (m *moment) bring(ctx context.Context, rows []plan.Row) waiting.Blocker {
	alike := !slices.ContainsFunc(rows, func(row plan.Row) bool { return row.Key().Source() != rows[0].Key().Source() })
	if alike && len(rows) < manyChanges {
		var missing waiting.Blocker
		for _, row := range rows {
			missing = waiting.First(missing, m.of(row).bring(ctx))
		}
		return missing
	}
	each := make([]waiting.Blocker, len(rows))
	var calls sync.WaitGroup
	for i, row := range rows {
		calls.Go(func() { each[i] = m.of(row).bring(ctx) })
	}
	calls.Wait()
	return waiting.First(each...)
}

// bring returns what is missing until the registry has what the row wants.
func (e *entry) bring(ctx context.Context) waiting.Blocker {
	switch {
	case e.Proof == plan.Never && !(e.decision.Releases && e.facts.Goal(e.Row).Given): // whoever else gives it to clients
		return waiting.Blocker{}
	case e.Proof == plan.Lost:
		if e.facts.Tracked.PassedOn(e.in, e.Clock.Now()) {
			e.History.Removed(e.inHistory(), entryInHistory(e.Target), history.ByAnother, 0)
		}
		return waiting.Blocker{}
	case e.ByApp():
		return appEntry{e}.bring(ctx)
	}
	return e.agree(ctx)
}

// agree takes the entry's steps ([tracker.Instance.Next]) until there is none, or it has to wait.
func (e *entry) agree(ctx context.Context) waiting.Blocker {
	goal, tracked := e.facts.Goal(e.Row), e.facts.Tracked
	tracked.RecallRemoval(e.in, e.OutSince, e.Ahead())
	for {
		if e.Want == lifecycle.Absent {
			tracked.LetGo(e.in) // whether the registry can be asked or not
		}
		var missing waiting.Blocker
		switch step := tracked.Standing(e.in).Next(goal, e.Clock.Now()); step.Act {
		case tracker.Change:
			missing = e.call(ctx)
		case tracker.Ask:
			missing = e.ask(ctx, &goal)
		case tracker.Wait:
			return e.waitsFor(goal, step)
		default:
			e.agreed()
			return waiting.Blocker{}
		}
		if missing.Reason != "" {
			return missing
		}
	}
}

// agreed cleans up after the last step.
func (e *entry) agreed() {
	e.facts.Tracked.GivenNoMore(e.in, e.Clock.Now())
	e.lookForSeveral()
	if e.Want == lifecycle.Absent {
		e.State.Claims.Removed(e.pod().UID, e.in, e.Clock.Now())
	}
}

func (e *entry) waitsFor(goal tracker.Goal, step tracker.Step) waiting.Blocker {
	switch step.Cause {
	case tracker.Postponed:
		said := step.Said
		return waiting.Blocker{
			Reason: said.Reason, Case: waiting.Case(said.Case), Message: said.Message, Late: said.Late, After: step.After,
		}
	case tracker.Settling:
		return waiting.Settling(e.Row, max(step.After, firstPause))
	case tracker.GivenByAnother:
		return e.alsoRegistersItself("its list has an entry of another writer")
	case tracker.Unseen:
		e.facts.Tracked.GivenNoMore(e.in, e.Clock.Now())
		return e.awaitsApp(waiting.AppUnseen(e.Row), nil)
	default:
		return waiting.NotConfirmed(e.Row, e.Want, goal.Said, e.backOff())
	}
}
