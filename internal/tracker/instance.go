package tracker

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// Instance is what this process knows of one instance in one registry: a value, whose methods return the one after it. The zero value
// knows nothing. Only an acknowledged call of this process tells what the registry has, and only once nothing before it can undo it:
//
//	call                                    outcome
//	Deregister, acknowledged                it is absent
//	Register timed out, then Deregister     unknown while the Register may still be carried out
//	was acknowledged
//	any other error                         unknown
type Instance struct {
	// want and told are of the last change, which began then; zero if there was none. told is also nil if the endpoint is another
	// pod's by now.
	want  lifecycle.Want
	told  *registry.Instance
	began time.Time
	// since is the last acknowledgement. Older lists don't count.
	since time.Time
	// late are changes that failed and may still be carried out.
	late map[lifecycle.Want]late
	// entry is to be kept alive, unless it is being removed.
	entry *entry
	// mark is the registry's name in the entry, by the last Register or list.
	mark string
	// listed is set if a list has it and this process has made no change.
	listed *Sighting
	// removedAt is when it was taken out, with no Register tried since; or when another's entry for it went after that.
	removedAt time.Time
	// recordedRemoval is the same by another manager's record and clock.
	recordedRemoval time.Time
	// seen is when the registry last had an entry.
	seen time.Time
	// outAfterGone is when the application's entry was taken out, after its pod was gone.
	outAfterGone time.Time
	// postponed is the registry's last word when to come back.
	postponed *Postponement

	// wasIn: it has been in rotation, by an acknowledgement, an answer or a list.
	wasIn bool
	// acknowledged: so was the last change, and nothing has contradicted it.
	acknowledged bool
	// removing: its removal has begun, and it is not yet known to be absent.
	removing bool
	// unconfirmed: a change failed, and the registry has not been asked since.
	unconfirmed bool
	// returned: an application's entry that was out is in rotation again.
	returned bool
	// missing: an application's entry that was out was not there when last asked for.
	missing bool
	// given: clients were last given it by an entry that no Rollcall has written.
	given bool
}

// late are the changes to one state that ended in an error.
type late struct {
	// until is when the last one that timed out can be carried out.
	until time.Time
	// failed: another was carried out soon after its answer, or not at all.
	failed bool
}

// entry is what the registry has, by an acknowledgement or a record.
type entry struct {
	instance *registry.Instance
	want     lifecycle.Want
	// unlike is how it was last listed, if what clients see differs.
	unlike *registry.Instance
}

// Target is one instance in one registry.
type Target struct {
	// Writer is whose entry it is in the Registry, which is a name of the configuration.
	Registry string
	Writer   lifecycle.Writer
	Instance registry.Instance
}

// Key identifies the target among the pod's.
func (t Target) Key() lifecycle.Key {
	return lifecycle.Key{
		Registry: t.Registry, Writer: t.Writer, Service: lifecycle.Service(t.Instance.Service),
		Address: t.Instance.Address, Port: t.Instance.Port,
	}
}

// Pod is the one in the instance's mark.
func (t Target) Pod() lifecycle.PodID {
	name := types.NamespacedName{Namespace: t.Instance.Namespace, Name: t.Instance.Pod}
	return lifecycle.PodID{NamespacedName: name, UID: types.UID(t.Instance.UID)}
}

// Sighting is an entry as one list had it.
type Sighting struct {
	Instance registry.Instance
	State    registry.State
	// AsOf is since when the registry may have been told otherwise.
	AsOf time.Time
	// Confirms: it can stand for an acknowledged Register.
	Confirms bool
}

func (s Sighting) want() lifecycle.Want {
	if s.State == registry.InService {
		return lifecycle.InService
	}
	return lifecycle.OutOfService
}

// Known reports whether this process has changed it, or a list or answer has shown it. A record does not count.
func (i Instance) Known() bool {
	return i.Attempted() || i.listed != nil || !i.seen.IsZero()
}

// Attempted reports whether this process has changed it.
func (i Instance) Attempted() bool { return i.want != "" }

// shows returns the last change, else what a list shows, else nothing.
func (i Instance) shows() (want lifecycle.Want, acknowledged bool) {
	if !i.Attempted() && i.listed != nil {
		return i.listed.want(), true
	}
	return i.want, i.acknowledged
}

// Stands reports whether the last change asked for that and was acknowledged.
func (i Instance) Stands(want lifecycle.Want) bool { return i.acknowledged && i.want == want }

// Serves reports whether clients are given it, by the last change, else a list, else the record.
func (i Instance) Serves() bool {
	want, known := i.shows()
	if want == "" && i.entry != nil {
		want, known = i.entry.want, true
	}
	return known && want == lifecycle.InService
}

// Says is [Instance.Stands], and in rotation also with the same weight and metadata.
func (i Instance) Says(want lifecycle.Want, in registry.Instance) bool {
	return i.Stands(want) && (want != lifecycle.InService || i.told.Equal(in))
}

// WasInService reports whether it has been in rotation since this process leads.
func (i Instance) WasInService() bool { return i.wasIn }

// AskedOut reports whether the last change was to take it out, whatever came of it.
func (i Instance) AskedOut() bool { return i.Attempted() && i.want != lifecycle.InService }

// Settled reports whether the last change began after all that could undo it.
func (i Instance) Settled() bool { return !i.began.Before(i.unsettledUntil()) }

// settledAfter is when the last change must have begun, so that no change that timed out can undo it.
func (i Instance) settledAfter(g Goal) time.Time {
	if own := i.unsettledUntil(); own.After(g.Late) {
		return own
	}
	return g.Late
}

func (i Instance) unsettledUntil() time.Time {
	return i.landsUntil(func(want lifecycle.Want) bool { return want != i.want })
}

// LandsUntil is until when a change that timed out may still be carried out: one that puts it into service, or else one that takes it out.
func (i Instance) LandsUntil(in bool) time.Time {
	return i.landsUntil(func(want lifecycle.Want) bool { return (want == lifecycle.InService) == in })
}

func (i Instance) landsUntil(such func(lifecycle.Want) bool) (latest time.Time) {
	for want, l := range i.late {
		if such(want) && l.until.After(latest) {
			latest = l.until
		}
	}
	return latest
}

// PassedOn reports whether nothing of the pod's was left to change, so that no answer of a registry is about it.
func (i Instance) PassedOn() bool { return i.acknowledged && i.told == nil }

// AcknowledgedAt is the last acknowledgement to this process, or zero.
func (i Instance) AcknowledgedAt() time.Time { return i.since }

// SeenAt is when the registry last had an entry; zero if this process has found none.
func (i Instance) SeenAt() time.Time { return i.seen }

// OutAfterGone is when the application's entry was first taken out after its pod was gone, or zero.
func (i Instance) OutAfterGone() time.Time { return i.outAfterGone }

// Missing reports whether the application's entry, once out, was not there when last asked for: it may be at another address by now.
func (i Instance) Missing() bool { return i.missing }

// Returned reports whether the application's entry, once out, was found in rotation.
func (i Instance) Returned() bool { return i.returned }

// RemovedAt returns when it was taken out, maybe by another manager's record, and since when the drain counts here, whose clock may be
// ahead. Both are zero if it was not. Recorded 10:00:00, ahead 2s: the drain counts from 10:00:02, or from our own call if that was sooner.
func (i Instance) RemovedAt(ahead time.Duration) (recorded, counted time.Time) {
	if i.recordedRemoval.IsZero() || i.removedAt.IsZero() {
		return i.removedAt, i.removedAt
	}
	counted = i.recordedRemoval.Add(ahead)
	if counted.After(i.removedAt) {
		counted = i.removedAt
	}
	return i.recordedRemoval, counted
}

// begin makes the outcome unknown.
func (i Instance) begin(want lifecycle.Want, told registry.Instance, now time.Time) Instance {
	if i.told == nil || !i.told.Equal(told) {
		changed := told
		i.told = &changed
	}
	i.want, i.began, i.acknowledged, i.listed, i.returned = want, now, false, nil, false
	if want == lifecycle.InService {
		i.removedAt, i.recordedRemoval = time.Time{}, time.Time{}
	}
	return i
}

// letGo ends the heartbeats before the removal. It no longer counts as acknowledged, so a pod that stays after all is registered again.
func (i Instance) letGo() Instance {
	if i.entry != nil {
		i.entry = &entry{instance: i.entry.instance, want: i.entry.want}
	}
	i.acknowledged, i.removing = false, true
	return i
}

// stay keeps alive again what is not known to be removed.
func (i Instance) stay() Instance {
	i.removing = false
	return i
}

// kept reports whether heartbeats are due.
func (i Instance) kept() bool { return i.entry != nil && !i.removing }

// mayBeThere reports whether the registry has or may have an entry, also if only a record shows it.
func (i Instance) mayBeThere() bool {
	return i.entry != nil || i.listed != nil || i.Attempted() && !(i.Stands(lifecycle.Absent) && i.Settled())
}

func (i Instance) acknowledge(now time.Time) Instance {
	// A late Register can have put it in again since.
	_, wasIn := i.late[lifecycle.InService]
	if i.want != lifecycle.InService && (wasIn || i.removedAt.IsZero()) {
		i.removedAt = now
	}
	i.acknowledged = true
	return i.landed(i.began, func(w lifecycle.Want) bool { return w == i.want }).known(now)
}

// passOn: another pod's application has the endpoint, so the registry's answers are not about this pod.
func (i Instance) passOn(now time.Time) Instance {
	i = i.begin(lifecycle.Absent, registry.Instance{}, now).acknowledge(now)
	i.told = nil
	return i
}

// known notes what the registry has from then on.
func (i Instance) known(since time.Time) Instance {
	i.since, i.removing = since, false
	if i.want == lifecycle.InService {
		i.mark, i.wasIn = i.told.Registry, true
		i = i.saw(since)
	}
	switch {
	case i.want == lifecycle.Absent:
		i.entry = nil
	case i.entry != nil && i.entry.instance.Equal(*i.told):
		i.entry = &entry{instance: i.told, want: i.want, unlike: i.entry.unlike}
	default:
		i.entry = &entry{instance: i.told, want: i.want}
	}
	return i
}

// saw: asked then, the registry had an entry.
func (i Instance) saw(asked time.Time) Instance {
	if asked.After(i.seen) {
		i.seen = asked
	}
	i.missing = false
	return i
}

// fail: a change may be carried out until lands, unless that is zero.
func (i Instance) fail(lands time.Time) Instance {
	i.unconfirmed = true
	if i.late = maps.Clone(i.late); i.late == nil {
		i.late = map[lifecycle.Want]late{}
	}
	l := i.late[i.want]
	if lands.IsZero() {
		l.failed = true
	} else if lands.After(l.until) { // an earlier one may have had a longer timeout
		l.until = lands
	}
	i.late[i.want] = l
	return i
}

// mayBeUndone: another pod's change to that state may be carried out until then.
func (i Instance) mayBeUndone(want lifecycle.Want, until time.Time) Instance {
	if i.late = maps.Clone(i.late); i.late == nil {
		i.late = map[lifecycle.Want]late{}
	}
	l := i.late[want]
	l.until = until
	i.late[want], i.unconfirmed = l, true
	return i
}

// landed drops late changes that ended before began, which settled what they did.
func (i Instance) landed(began time.Time, over func(lifecycle.Want) bool) Instance {
	before := i.late
	i.late = nil
	for want, l := range before {
		l.failed = l.failed && !over(want)
		if !began.Before(l.until) && !l.failed {
			continue
		}
		if i.late == nil {
			i.late = map[lifecycle.Want]late{}
		}
		i.late[want] = l
	}
	return i
}

// confirm: asked then, the registry had what is wanted.
func (i Instance) confirm(asked time.Time) Instance {
	// A failed Register can have put it in, and someone else or a late change taken it out.
	if _, wasIn := i.late[lifecycle.InService]; wasIn && i.want != lifecycle.InService {
		i.removedAt = asked
	}
	i.unconfirmed = false
	return i.landed(asked, func(lifecycle.Want) bool { return true })
}

// contradict: the registry had something else.
func (i Instance) contradict(state registry.State) Instance {
	i.acknowledged = false
	return i.drainAnew(state)
}

// answered reports whether an application's entry, asked for then, differs from what was acknowledged. If it must be out, absent is fine.
func (i Instance) answered(state registry.State, asked time.Time) (after Instance, differs bool) {
	in := state == registry.InService
	if state != registry.Absent {
		i = i.saw(asked)
	}
	if !i.acknowledged || i.since.After(asked) || in == (i.want == lifecycle.InService) {
		i.missing = i.missing || state == registry.Absent && i.acknowledged && i.want != lifecycle.InService
		return i, false
	}
	i.acknowledged, i.returned = false, in
	return i.drainAnew(state), true
}

// drainAnew restarts the drain if clients are given it.
func (i Instance) drainAnew(state registry.State) Instance {
	if state == registry.InService {
		i.removedAt, i.recordedRemoval, i.wasIn = time.Time{}, time.Time{}, true
	}
	return i
}

// givenNoMore: another's entry for it has gone, just now at the latest, so the drain begins.
func (i Instance) givenNoMore(now time.Time) Instance {
	if i.given && i.AskedOut() {
		i.removedAt, i.recordedRemoval = now, time.Time{}
	}
	i.given = false
	return i
}

// recall takes the pod's record. If the record lies, the registry has no such entry, or a harmless one.
func (i Instance) recall(want lifecycle.Want, in registry.Instance, now time.Time) Instance {
	i.since, i.entry = now, &entry{instance: &in, want: want}
	return i
}

// recallRemoval continues the drain of the record, before this process takes it out. A list after that may have it in rotation again, by
// this clock, which is ahead of the record's.
func (i Instance) recallRemoval(at time.Time, ahead time.Duration) Instance {
	earliest := at.Add(min(ahead, 0))
	if i.Attempted() || i.listed != nil && i.listed.State == registry.InService && !earliest.After(i.listed.AsOf) {
		return i
	}
	i.recordedRemoval = at
	return i
}

// sight takes a listed entry. It reports whether to visit the pod, and whether the entry differs from what was acknowledged.
func (i Instance) sight(s Sighting) (after Instance, look, differs bool) {
	if i.since.After(s.AsOf) {
		return i, false, false
	}
	if i.mark = s.Instance.Registry; i.removing {
		return i, false, false
	}
	differs = i.entry != nil || i.acknowledged
	if i.entry != nil {
		var agrees bool
		if i.entry, agrees = i.entry.compared(s); agrees {
			return i, false, false
		}
	}
	i.acknowledged = false
	if !i.Attempted() {
		i.listed = &s
	}
	return i.drainAnew(s.State), true, differs
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

// miss: asked then, the registry had no entry. It reports whether clients need it; if it is out, none is needed.
func (i Instance) miss(asked time.Time) (after Instance, missed bool) {
	if i.listed != nil && !i.listed.AsOf.After(asked) {
		i.listed = nil
	}
	if i.entry == nil || i.since.After(asked) {
		return i, false
	}
	missed = i.entry.want == lifecycle.InService && !i.removing
	i.entry = nil
	if missed && i.want == lifecycle.InService {
		i.acknowledged = false
	}
	return i, missed
}

// adopt takes an entry that is listed in rotation for an acknowledged Register.
func (i Instance) adopt(told registry.Instance) Instance {
	asOf := i.listed.AsOf
	i = i.begin(lifecycle.InService, told, asOf)
	i.acknowledged = true
	return i.known(asOf)
}

// doubt: nobody has watched the entry for a while.
func (i Instance) doubt() Instance {
	i.acknowledged, i.removedAt, i.recordedRemoval = false, time.Time{}, time.Time{}
	return i
}
