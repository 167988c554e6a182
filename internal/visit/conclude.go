package visit

import (
	"cmp"
	"context"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// conclude writes what [plan.Conclude] decides.
func (v *visit) conclude(ctx context.Context) error {
	before, decision := v.pod(), v.decision
	outcome := v.outcome(ctx)
	write := plan.Conclude(outcome)
	v.askIdle(write.Ask, outcome.Drain)
	v.drainBegins(write, outcome.Drain)
	v.held, v.excuse = write.Held, excuses(write.Released.By)
	if v.facts.Uncached {
		write.Record = nil // it goes with the pod
	}
	if err := v.patch(ctx, write.Edit, write.Record); err != nil || v.pod() == before {
		return err // or there was nothing to write, or it is a dry run, which has reported what it would do
	}
	released := decision.Waiting != "" && v.decision.Waiting == ""
	if released || v.excuse != "" {
		v.Releases.Count(string(decision.Waiting), cmp.Or(v.excuse, metrics.ByAcknowledgement))
	}
	if v.excuse != "" {
		v.event(reason.ReleasedUnacknowledged, write.Released.Message)
	}
	if released {
		v.drained(decision.Waiting, write.Drained, outcome.Drain)
		v.released(decision, write.Released.By, v.waited(decision.Waiting))
	}
	return nil
}

// excuses returns the metric's word for why a hook is released although something is missing, if it is.
func excuses(released plan.Excuse) string {
	return map[plan.Excuse]string{plan.Skipped: metrics.BySkip, plan.Proceeded: metrics.ByFailurePolicy}[released]
}

func (v *visit) outcome(ctx context.Context) plan.Outcome {
	now, entries := v.Clock.Now(), v.plan()
	since, after := v.facts.Settings.ProceedAfter.Deadline(v.pod(), v.decision)
	if after > 0 && v.pod().DeletionTimestamp == nil { // which is in the future by intention
		since = v.facts.Memory.Read(since, now)
	}
	drain := plan.DrainOf(entries, v.rows, v.facts.Drain, v.Ahead(), v.facts.Memory.OutRead)
	drain.Last = v.lastAnswer()
	return plan.Outcome{
		Facts: entries, Input: v.input, Decision: v.decision, Rows: v.rows, Certain: v.facts.Certain, Held: v.held, Joining: v.joining,
		Drain: drain, Grows: v.facts.Grows > 0,
		Skip: v.facts.Skip, Since: since, ProceedAfter: after, Stops: ctx.Err() != nil, Now: now,
	}
}

// waited measures how long OpenKruise waited for a hook.
func (v *visit) waited(hook lifecycle.Hook) (waited time.Duration) {
	if since, err := lifecycle.MovedAt(v.pod()); err == nil {
		waited = max(v.Clock.Now().Sub(since), 0)
		v.Releases.Waited(string(hook), waited)
	}
	return waited
}
