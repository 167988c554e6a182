package plan

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Released is why a hook is released without the registry's word, as metric, Event and history show it.
type Released struct {
	By      Excuse
	Message string
}

// Excuse is what replaces the registry's acknowledgement. The zero value is none.
type Excuse int

// The excuses.
const (
	Acknowledged Excuse = iota
	Skipped
	Proceeded
)

// release returns what is released although b is missing:
//
//	skip annotation               immediately
//	proceedAfter has passed       unless a drain still runs, or a registry was never asked
//	proceedAfter is yet to pass   nothing; b is when to check again
func (o Outcome) release(b *waiting.Blocker) (lifecycle.Edit, Released) {
	d, drained := o.Decision, o.drained()
	if o.skips() {
		edit := d.Skip()
		edit.ClearSkip = true
		left := time.Duration(0)
		if b.Reason != reason.Draining {
			left = max(drained.Sub(o.Now), 0)
		}
		return edit, Released{Skipped, waiting.SkippedNote(d.Waiting, o.Input.Pod.Annotations[lifecycle.AnnotationSkip], b.Message, left)}
	}
	if o.ProceedAfter == 0 || b.Unasked || !b.Reason.OfRegistry() {
		return lifecycle.Edit{}, Released{}
	}
	asked := o.Since.Add(o.ProceedAfter)
	if remaining := later(asked, drained).Sub(o.Now); remaining > 0 {
		if b.After == 0 || remaining < b.After {
			b.After = remaining
		}
		return lifecycle.Edit{}, Released{}
	}
	edit := d.Unacknowledged()
	edit.AsRecorded = true
	return edit, Released{Proceeded, waiting.ProceededNote(d.Waiting, o.Now.Sub(o.Since), o.ProceedAfter, drained.After(asked), b.Message)}
}

// drained is when the drain is over for which a hook waits; zero without one.
func (o Outcome) drained() time.Time {
	if !o.Decision.Row.Drains() {
		return time.Time{}
	}
	return o.Drain.ends(o.Now)
}

// skips reports whether a person skips the hook that OpenKruise waits for.
func (o Outcome) skips() bool {
	return !o.Decision.Skip().Empty() && slices.Contains(o.Skip.Hooks, o.Decision.Waiting)
}
