package plan

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// entry is one that the pod has, should have or had, and what this process knows of it. What holds for it makes its row.
type entry struct {
	Facts

	in    lifecycle.Key
	known tracker.Instance
}

func (f Facts) entry(in lifecycle.Key) entry { return entry{Facts: f, in: in, known: f.Known.Of(in)} }

func (e entry) isRecorded() bool {
	if e.recorded != nil {
		return isAmong(e.recorded, e.in)
	}
	return slices.ContainsFunc(e.Record.Instances, func(r lifecycle.Key) bool { return e.named(r) == e.in })
}

// neverThere reports whether it can't have been in rotation: the pod came while this process watched, without a call or record. To release
// a hook, or with a record, a list must also have shown that no earlier leader registered it, since the first watch may lag. No list shows
// what applications register.
func (e entry) neverThere(want lifecycle.Want) bool {
	if want == lifecycle.InService || !e.Known.Born() || isAmong(e.Instances(), e.in) {
		return false
	}
	needsNoList := want != lifecycle.Absent && !lifecycle.MustStayOut(e.Pod) && !e.Record.Exists()
	return needsNoList || !e.in.ByApp() && e.Known.Shown(e.in)
}

// outSince is when the pod was taken out, by the record; nil if someone may have put it back since: an application, or a manager if the
// pod may have been in rotation since.
func (e entry) outSince(want lifecycle.Want) *time.Time {
	says := e.Record.Want == want && e.isRecorded()
	if e.in.ByApp() || !e.Record.Fresh(e.Pod) || !says || !lifecycle.MustStayOut(e.Pod) {
		return nil
	}
	return e.Record.OutSince
}

// isCalledAsTarget reports whether it is the application that is called for a target anyway.
func (e entry) isCalledAsTarget() bool {
	called := func(t tracker.Target) bool { return t.Key().Source() == e.in.Source() }
	return e.Configuration.CallsPods(e.in.Registry) && slices.ContainsFunc(e.Targets, called)
}

// staysOut reports whether an entry is out already, so that no hook waits for a registry that the pod is leaving. If the application's own
// entry can show only once Rollcall's is gone, that goes.
func (e entry) staysOut() bool {
	return e.known.Stands(lifecycle.OutOfService) && !e.IsTarget(e.in.By(lifecycle.Application))
}

// staysUnderAnotherName reports whether the pod keeps the instance in another registry, which may be the same server: an entry that is the
// other's by now must be spared.
func (e entry) staysUnderAnotherName() bool {
	return slices.ContainsFunc(e.Targets, func(t tracker.Target) bool {
		other := t.Key()
		other.Registry, other.Writer = e.in.Registry, e.in.Writer
		return other == e.in && t.Key().Source() != e.in.Source()
	})
}
