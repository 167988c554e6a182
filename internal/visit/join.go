package visit

import (
	"context"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// leaveFormer clears the pod's former addresses, which other pods may get.
func (v *visit) leaveFormer(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Former)
}

func (v *visit) leaveDeparting(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Departing)
}

func (v *visit) leavePresent(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Present)
}

// join registers the pod.
func (v *visit) join(ctx context.Context) waiting.Blocker {
	v.joining = v.ensureAll(ctx, v.rows.Present)
	if v.joining.Reason == "" {
		v.forgetSame()
	}
	return v.joining
}

// forgetSame forgets what was taken out by other keys of what may be the same entries: they are in service again.
func (v *visit) forgetSame() {
	entries := v.entries()
	for in := range entries.Known.All() {
		if !entries.IsTarget(in) && entries.MayBeTargets(in) {
			v.Tracked.Forget(in, v.Clock.Now())
		}
	}
}

// probe asks whether clients are given the pod, if a hook or a departure depends on it.
func (v *visit) probe(ctx context.Context) waiting.Blocker {
	if len(v.decision.Then.Set) == 0 && !slices.ContainsFunc(v.rows.Departing, v.unacknowledged) {
		return waiting.Blocker{}
	}
	return v.probeAll(ctx, v.rows.Present)
}

// awaitReaders gives clients the time to learn of the pod, and the pod to warm up if it counts only then, if OpenKruise waits.
func (v *visit) awaitReaders(context.Context) waiting.Blocker {
	if v.decision.Waiting == "" {
		return waiting.Blocker{}
	}
	if v.Grows > 0 && v.Settings.Services.CountsAtEnd {
		return waiting.WarmingUp(v.Grows)
	}
	return v.readersLag(v.rows.Present)
}

// depart leaves a service or registry once clients find the pod where it belongs.
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

// readersLag is what is left of the slowest registry's readerLag.
func (v *visit) readersLag(changes []plan.Row) (latest waiting.Blocker) {
	for _, c := range changes {
		lag := v.Settings.ReaderLag[c.Registry]
		known := v.Tracked.Standing(c.Key()).AcknowledgedAt().Add(lag)
		if remaining := known.Sub(v.Clock.Now()); lag > 0 && remaining > latest.After {
			latest = waiting.ReadersLag(c, known, remaining)
		}
	}
	return latest
}

// unheard waits for the entries that only the record shows, of which each visit deals with some.
func (v *visit) unheard(context.Context) waiting.Blocker {
	left := len(v.rows.Unheard)
	if left == 0 {
		return waiting.Blocker{}
	}
	return waiting.Unheard(left)
}
