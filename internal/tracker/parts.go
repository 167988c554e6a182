package tracker

import (
	"maps"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// asked is the last change; zero if there was none.
type asked struct {
	want lifecycle.Want
	// told is also nil if the endpoint is another pod's now.
	told  *registry.Instance
	began time.Time
	// acknowledged: so was the change, and nothing has contradicted it.
	acknowledged bool
	// AcknowledgedAt is the last acknowledgement to this process, or when it read the record. Older lists don't count.
	AcknowledgedAt time.Time
}

// attempted reports whether this process has changed it.
func (a asked) attempted() bool { return a.want != "" }

// AskedOut reports whether the last change was to take it out, whatever came of it.
func (a asked) AskedOut() bool { return a.attempted() && a.want != lifecycle.InService }

// Stands reports whether the last change asked for that and was acknowledged.
func (a asked) Stands(want lifecycle.Want) bool { return a.acknowledged && a.want == want }

// IsOut reports whether the last change took it out, acknowledged.
func (a asked) IsOut() bool { return a.acknowledged && a.AskedOut() }

// Says is Stands, and in rotation also with the same weight and metadata.
func (a asked) Says(want lifecycle.Want, in registry.Instance) bool {
	return a.Stands(want) && (want != lifecycle.InService || a.told.Equal(in))
}

// PassedOn reports whether nothing of the pod's was left to change, so that no answer of a registry is about it.
func (a asked) PassedOn() bool { return a.acknowledged && a.told == nil }

// doubt is why an acknowledgement need not be the last word, or why a change can't be made yet.
type doubt struct {
	// late are changes that failed and may still be carried out.
	late map[lifecycle.Want]late
	// unconfirmed: a change failed, and the registry has not been asked since.
	unconfirmed bool
	// postponed is the registry's last word when to come back.
	postponed *Postponement
}

// late are the changes to one state that ended in an error.
type late struct {
	// until is when the last one that timed out can be carried out.
	until time.Time
	// failed: another was carried out soon after its answer, or not at all.
	failed bool
}

// mayLand: a change to that may be carried out until then; soon, or not at all, if until is zero.
func (d doubt) mayLand(want lifecycle.Want, until time.Time) doubt {
	l := d.late[want]
	l.until = later(l.until, until) // an earlier one may have had a longer timeout
	l.failed = l.failed || until.IsZero()
	before := d.late
	d.late = map[lifecycle.Want]late{}
	maps.Copy(d.late, before)
	d.late[want], d.unconfirmed = l, true
	return d
}

// landed drops late changes that ended before began, which settled what they did.
func (d doubt) landed(began time.Time, over func(lifecycle.Want) bool) doubt {
	d.late = maps.Clone(d.late)
	for want, l := range d.late {
		l.failed = l.failed && !over(want)
		d.late[want] = l
		if !began.Before(l.until) && !l.failed {
			delete(d.late, want)
		}
	}
	if len(d.late) == 0 {
		d.late = nil // an empty one takes memory
	}
	return d
}

// LandsUntil is until when a change that timed out may still be carried out: one that puts it into service, or else one that takes it out.
func (d doubt) LandsUntil(in bool) time.Time {
	return d.landsUntil(func(want lifecycle.Want) bool { return (want == lifecycle.InService) == in })
}

func (d doubt) landsUntil(such func(lifecycle.Want) bool) (latest time.Time) {
	for want, l := range d.late {
		if such(want) {
			latest = later(latest, l.until)
		}
	}
	return latest
}

// reads reports whether the registry must be asked, and can be.
func (d doubt) reads(g Goal) bool { return d.unconfirmed && g.Gets }

// unlessPostponed returns the act, or a wait if the registry asked for it, for this change and through this client. A registry that is full
// must not keep a deleted pod, and new credentials may help.
func (d doubt) unlessPostponed(act Act, g Goal, now time.Time) Step {
	p := d.postponed
	if p == nil || p.Want != g.Want || p.Through != g.Through || !now.Before(p.Until) {
		return Step{Act: act}
	}
	return Step{Act: Wait, Cause: Postponed, After: p.Until.Sub(now), Said: *p}
}

// kept is what is to be kept alive, and what lists show.
type kept struct {
	// entry is to be kept alive, unless it is being removed.
	entry *entry
	// removing: its removal has begun, and it is not yet known to be absent.
	removing bool
	// mark is the registry's name in the entry, by the last Register or list.
	mark string
	// listed is set if a list has it and this process has made no change.
	listed *Sighting
}

// lives reports whether heartbeats are due.
func (k kept) lives() bool { return k.entry != nil && !k.removing }

// entry is what the registry has, by an acknowledgement or a record.
type entry struct {
	instance *registry.Instance
	want     lifecycle.Want
	// unlike is how it was last listed, if what clients see differs.
	unlike *registry.Instance
}

// compared reports whether the list agrees. If a second call did not change what clients see, the registry has no place for it: a weight
// in a registry without weights, for example.
func (e *entry) compared(s Sighting) (after *entry, agrees bool) {
	switch {
	case e.want != s.want():
		return e, false
	case e.want != lifecycle.InService, e.unlike != nil && e.unlike.Equal(s.Instance):
		return e, true
	case e.instance.Equal(s.Instance):
		return &entry{instance: e.instance, want: e.want}, true
	default:
		return &entry{instance: e.instance, want: e.want, unlike: &s.Instance}, false
	}
}

// out is since when clients are not given it.
type out struct {
	// removedAt is when it was taken out, with no Register tried since; or when another's entry for it went after that.
	removedAt time.Time
	// recorded is the same by another manager's record and clock.
	recorded time.Time
	// OutAfterGone is when the application's entry was first taken out after its pod was gone, or zero.
	OutAfterGone time.Time
	// given: clients were last given it by an entry that no Rollcall has written.
	given bool
	// Returned: the application's entry, once out, was found in rotation.
	Returned bool
}

// RemovedAt returns when it was taken out, maybe by another manager's record, and since when the drain counts here, whose clock may be
// ahead. Both are zero if it was not. Recorded 10:00:00, ahead 2s: the drain counts from 10:00:02, or from our own call if that was sooner.
func (o out) RemovedAt(ahead time.Duration) (recorded, counted time.Time) {
	if o.recorded.IsZero() || o.removedAt.IsZero() {
		return o.removedAt, o.removedAt
	}
	return o.recorded, slices.MinFunc([]time.Time{o.recorded.Add(ahead), o.removedAt}, time.Time.Compare)
}

// again: it is in rotation, or may be, so the next drain begins from its start.
func (o out) again() out {
	o.removedAt, o.recorded = time.Time{}, time.Time{}
	return o
}

// seen is what the registry was found to have.
type seen struct {
	// SeenAt is when the registry last had an entry; zero if this process has found none.
	SeenAt time.Time
	// WasIn: it has been in rotation since this process leads, by an acknowledgement, an answer or a list.
	WasIn bool
	// Missing: the application's entry, once out, was not there when last asked for: it may be at another address now.
	Missing bool
}

// saw: asked then, the registry had an entry.
func (s seen) saw(asked time.Time) seen {
	s.SeenAt, s.Missing = later(s.SeenAt, asked), false
	return s
}

// unseen reports whether one must be seen, and was not.
func (s seen) unseen(g Goal) bool { return g.MustBeSeen && (s.SeenAt.IsZero() || s.Missing) }

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
