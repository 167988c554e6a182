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

// release is a hook released without the registry's word, as metric and Event show it.
type release struct {
	by      string
	reason  reason.Reason
	message string
}

// release returns what is released although b is missing:
//
//	skip annotation               immediately
//	proceedAfter has passed       unless a drain still runs, or a registry was never asked
//	proceedAfter is yet to pass   nothing; b says to look again then
func (v *visit) release(b *waiting.Blocker) (lifecycle.Edit, *release) {
	d := v.decision
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
	since, after := v.Settings.ProceedAfter.Deadline(v.pod(), d)
	if v.pod().DeletionTimestamp == nil { // which is in the future by intention
		since = v.Memory.Read(since, now)
	}
	if after == 0 || b.Unasked || !b.Reason.OfRegistry() {
		return lifecycle.Edit{}, nil
	}
	deadline, passed := since.Add(after), "has passed"
	if deadline.Before(drained) {
		deadline, passed = drained, "and the drain have passed"
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
		"hook %s was released after %s: proceedAfter.%s (%s) %s; not waited for: %s",
		d.Waiting, now.Sub(since).Round(time.Second), d.Waiting, after, passed, b.Message)}
}

// drainedAt is when the drain is over that this manager began, or another by the record, whichever is later; zero without one. The
// record is a tenant's to write, so it counts for one drain at most, from when this manager first read it.
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

// skips reports whether a person skips the hook that OpenKruise waits for.
func (v *visit) skips() bool {
	return !v.decision.Skip().Empty() && slices.Contains(v.Skip.Hooks, v.decision.Waiting)
}

// warnOfBrought records once that an update brought a handler with it.
func (v *visit) warnOfBrought() {
	why, moved := v.input.Brought(), lifecycle.StampOf(v.pod()).Timestamp
	if why != "" && moved != v.Memory.Brought {
		v.Memory.Brought = moved
		v.event(reason.HandlerInTemplate, why)
	}
}

// refuseSkip records once why the skip annotation is not followed.
func (v *visit) refuseSkip() {
	why := v.Skip.RefusedIn(v.decision)
	if why != "" && why != v.Memory.SkipRefused {
		v.event(reason.SkipRefused, why)
	}
	v.Memory.SkipRefused = why
}
