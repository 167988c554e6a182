package visit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// leaveFormer takes the pod out where its address was once, which may be another pod's soon.
func (v *visit) leaveFormer(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Former)
}

func (v *visit) leaveDeparting(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Departing)
}

func (v *visit) leavePresent(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Present)
}

// join registers the pod. A registry that was never asked is not to hold it later, so what has acknowledged is written down where
// another lasts to be missing. One that has the pod by the former record is named by this one too.
func (v *visit) join(ctx context.Context) waiting.Blocker {
	missing := v.ensureAll(ctx, v.rows.Present)
	unrecorded := func(c plan.Row) bool { return v.Certain(c) && v.input.Unrecorded(c.Key()) }
	if missing.Lasts(ctx.Err() != nil) && slices.ContainsFunc(v.rows.Present, unrecorded) {
		known := v.entries().Instances()
		v.record = v.newRecord(v.rows.Without(func(c plan.Row) bool { return !slices.Contains(known, c.Key()) }))
	}
	return missing
}

// probe asks whether clients are given the pod, where a hook hangs on it, or where the pod departs from what clients are given it by now.
func (v *visit) probe(ctx context.Context) waiting.Blocker {
	if len(v.decision.Then.Set) == 0 && !slices.ContainsFunc(v.rows.Departing, v.unacknowledged) {
		return waiting.Blocker{}
	}
	return v.probeAll(ctx, v.rows.Present)
}

// awaitReaders holds OpenKruise back until clients know the pod.
func (v *visit) awaitReaders(context.Context) waiting.Blocker {
	if v.decision.Waiting == "" {
		return waiting.Blocker{}
	}
	return v.readersLag(v.rows.Present)
}

// depart takes a pod that is in service everywhere that it belongs out of where it departs from, once clients are given it there.
func (v *visit) depart(ctx context.Context) waiting.Blocker {
	if slices.ContainsFunc(v.rows.Departing, v.unacknowledged) {
		present := v.entries().Present(lifecycle.InService)
		missing := v.readersLag(present)
		if missing.Reason == "" && v.decision.Want == lifecycle.Keep { // one that joins was asked for already
			missing = v.probeAll(ctx, present)
		}
		if missing.Reason != "" {
			return missing
		}
	}
	return v.leaveDeparting(ctx)
}

// readersLag waits until clients know the pod that was put in service, so that OpenKruise counts on no pod before.
func (v *visit) readersLag(changes []plan.Row) (latest waiting.Blocker) {
	for _, c := range changes {
		lag := v.Settings.ReaderLag[c.Registry]
		known := v.Tracked.Standing(c.Key()).AcknowledgedAt().Add(lag)
		if remaining := known.Sub(v.Clock.Now()); lag > 0 && remaining > latest.After {
			latest = waiting.Blocker{Reason: reason.ReadersLag, After: remaining, Message: fmt.Sprintf(
				"%s is registered; its clients may not know it before %s", c, known.Format(time.RFC3339))}
		}
	}
	return latest
}
