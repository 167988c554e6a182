package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// release is a hook that is released although something is missing, as the metric and the Event show it.
type release struct {
	by      string
	reason  reason.Reason
	message string
}

// release returns what is released although b is still missing: at once where a person skips the hook, and by the failure
// policy not before its deadline; then b says to look again at that time. A drain that still runs holds the policy back, and
// so does a registry that has yet to be asked: only one that was lets it go.
func (r *PodReconciler) release(seen *observation, b *notes.Blocker) (lifecycle.Edit, *release) {
	d, policy := seen.decision, seen.settings.OnRegistryFailure
	if seen.skips() {
		return d.Skip(), &release{metrics.BySkip, reason.Skipped, fmt.Sprintf(
			"hook %s was released by annotation %s: %q; not waited for: %s",
			d.Waiting, lifecycle.AnnotationSkip, seen.pod().Annotations[lifecycle.AnnotationSkip], b.Message)}
	}
	deadline, set := policy.Deadline(seen.pod(), d)
	if !set || b.Unasked || !b.Reason.OfRegistry() {
		return lifecycle.Edit{}, nil
	}
	now, since := r.Clock.Now(), deadline.Add(-policy.After)
	if _, out := r.removedAt(seen, seen.plan()); d.Row.Drains() && !out.IsZero() && deadline.Before(out.Add(seen.drain)) {
		deadline = out.Add(seen.drain)
	}
	if remaining := deadline.Sub(now); remaining > 0 {
		if b.After == 0 || remaining < b.After {
			b.After = remaining
		}
		return lifecycle.Edit{}, nil
	}
	return d.Unacknowledged(), &release{metrics.ByFailurePolicy, reason.Proceeded, fmt.Sprintf(
		"hook %s was released after %s, since onRegistryFailure.%s is Proceed after %s; not waited for: %s",
		d.Waiting, now.Sub(since).Round(time.Second), d.Waiting, policy.After, b.Message)}
}

// skips reports whether a person lets the hook go that OpenKruise waits for.
func (o *observation) skips() bool {
	return !o.decision.Skip().Empty() && slices.Contains(o.skip.Hooks, o.decision.Waiting)
}

// warnOfBrought shows, once for each move of the pod, that its update may have brought a handler along.
func (r *PodReconciler) warnOfBrought(seen *observation) {
	why, moved := seen.input.Brought(), lifecycle.StampOf(seen.pod()).Timestamp
	if why != "" && moved != seen.note.Brought {
		seen.note.Brought = moved
		r.event(seen, reason.HandlerInTemplate, why)
	}
}

// refuseSkip shows once why the pod's annotation is not followed.
func (r *PodReconciler) refuseSkip(seen *observation) {
	why := seen.skip.RefusedIn(seen.decision)
	if why != "" && why != seen.note.SkipRefused {
		r.event(seen, reason.SkipRefused, why)
	}
	seen.note.SkipRefused = why
}
