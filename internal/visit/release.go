package visit

import (
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// release is a hook that is released although something is missing, as the metric and the Event show it.
type release struct {
	by      string
	reason  reason.Reason
	message string
}

// release returns what is released although b is still missing: immediately if a person skips the hook, and by the failure
// policy not before its deadline; then b says to look again at that time. A drain that still runs holds the policy back, and
// so does a registry that has yet to be asked: only one that was lets it go.
func (v *visit) release(b *waiting.Blocker) (lifecycle.Edit, *release) {
	d, policy := v.decision, v.Settings.OnRegistryFailure
	now, drained := v.Clock.Now(), v.drainedAt()
	if v.skips() {
		missing := b.Message
		if b.Reason != reason.Draining && now.Before(drained) {
			missing += fmt.Sprintf("; nor for the drain, of which %s are left", drained.Sub(now).Round(time.Second))
		}
		return d.Skip(), &release{metrics.BySkip, reason.Skipped, fmt.Sprintf(
			"hook %s was released by annotation %s: %q; not waited for: %s",
			d.Waiting, lifecycle.AnnotationSkip, v.pod().Annotations[lifecycle.AnnotationSkip], missing)}
	}
	deadline, set := policy.Deadline(v.pod(), d)
	if !set || b.Unasked || !b.Reason.OfRegistry() {
		return lifecycle.Edit{}, nil
	}
	since, after := deadline.Add(-policy.After), policy.After.String()
	if deadline.Before(drained) {
		deadline, after = drained, after+", and its drain has passed"
	}
	if remaining := deadline.Sub(now); remaining > 0 {
		if b.After == 0 || remaining < b.After {
			b.After = remaining
		}
		return lifecycle.Edit{}, nil
	}
	edit := d.Unacknowledged()
	edit.AsRecorded = true
	return edit, &release{metrics.ByFailurePolicy, reason.Proceeded, fmt.Sprintf(
		"hook %s was released after %s, since onRegistryFailure.%s is Proceed after %s; not waited for: %s",
		d.Waiting, now.Sub(since).Round(time.Second), d.Waiting, after, b.Message)}
}

// drainedAt is when the drain has passed that this manager began, and the one that another began by the record; zero if neither did.
// The record counts whatever has become of its entries since: it only holds the pod back, and no longer than for a drain from when
// this manager first read it.
func (v *visit) drainedAt() time.Time {
	if !v.decision.Row.Drains() {
		return time.Time{}
	}
	_, began := v.removedAt()
	if recorded := v.input.Record.OutSince; recorded != nil {
		by := recorded.Add(v.Ahead())
		if read := v.Memory.OutRead; read.Before(by) {
			by = read
		}
		if began.Before(by) {
			began = by
		}
	}
	if began.IsZero() {
		return began
	}
	return began.Add(v.Drain)
}

// skips reports whether a person lets the hook go that OpenKruise waits for.
func (v *visit) skips() bool {
	return !v.decision.Skip().Empty() && slices.Contains(v.Skip.Hooks, v.decision.Waiting)
}

// warnOfBrought shows, once for each move of the pod, that its update may have brought a handler along.
func (v *visit) warnOfBrought() {
	why, moved := v.input.Brought(), lifecycle.StampOf(v.pod()).Timestamp
	if why != "" && moved != v.Memory.Brought {
		v.Memory.Brought = moved
		v.event(reason.HandlerInTemplate, why)
	}
}

// refuseSkip shows once why the pod's annotation is not followed.
func (v *visit) refuseSkip() {
	why := v.Skip.RefusedIn(v.decision)
	if why != "" && why != v.Memory.SkipRefused {
		v.event(reason.SkipRefused, why)
	}
	v.Memory.SkipRefused = why
}
