package tracker

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// Instance is what this process knows of one instance in one registry. It is a value: its methods return what is known
// after something happened, and change nothing. The zero value knows nothing.
//
// A registry is known to say what was asked for only after a call of this process was acknowledged, and while nothing that
// came before it can still undo it. A call that ended in any other way has an unknown outcome.
type Instance struct {
	// want is what the last change asked for, told the instance that it named, and began when it was made. Empty where this
	// process has made none; told is nil too where no registry was asked since the place is another pod's.
	want  lifecycle.Want
	told  *registry.Instance
	began time.Time
	// since is when the registry last acknowledged something. What a list said before that does not count.
	since time.Time
	// late holds what of the changes that ended in an error may still be carried out, or may have been since.
	late map[lifecycle.Want]late
	// entry is what must be kept alive in the registry, unless it is being removed; nil where nothing must.
	entry *entry
	// mark is the name of the registry that the entry carries, by the last Register that was acknowledged or a list since.
	mark string
	// listed is what a list said of an instance that this process has made no change for.
	listed *Sighting
	// removedAt is when the acknowledgement came that took the instance out, with no Register tried since, or when clients were no
	// longer given it by another's entry after that.
	removedAt time.Time
	// recordedRemoval is the same by the record of another manager, whose clock may differ.
	recordedRemoval time.Time
	// seen is when the registry was last known to have an entry.
	seen time.Time
	// outAfterGone is when the entry of an application was taken out whose pod was gone by then.
	outAfterGone time.Time
	// postponed is the registry's last word when to come back; nil where it has said none.
	postponed *Postponement

	// wasIn: the registry has had it in service once, by an acknowledgement, an answer or a list.
	wasIn bool
	// acknowledged: the last change was acknowledged, and nothing has said otherwise since.
	acknowledged bool
	// removing: the instance was let go, and its absence is not acknowledged yet.
	removing bool
	// unconfirmed: a change ended in an error, and the registry has not confirmed since what it acknowledged after that.
	unconfirmed bool
	// returned: an application's entry that was taken out was found in service again.
	returned bool
	// missing: an application's entry that was taken out was not there when it was last asked for.
	missing bool
	// given: when it was looked at last, clients were given the instance by an entry that no Rollcall has written.
	given bool
}

// late are the changes to one state that ended in an error.
type late struct {
	// until is when the last of those can be carried out that timed out.
	until time.Time
	// failed: one did not time out. It was carried out soon after its answer, or not at all.
	failed bool
}

// entry is what a registry has acknowledged to hold, or what a record says that it holds.
type entry struct {
	instance *registry.Instance
	want     lifecycle.Want
	// unlike is how the registry listed it last where that differs in what is for clients.
	unlike *registry.Instance
}

// Target is one instance in one registry.
type Target struct {
	// Registry is its name in the configuration, and Writer whose entry it is there.
	Registry string
	Writer   lifecycle.Writer
	Instance registry.Instance
}

// Key tells a target from the pod's others.
func (t Target) Key() lifecycle.Key {
	return lifecycle.Key{
		Registry: t.Registry, Writer: t.Writer, Service: t.Instance.Service, Address: t.Instance.Address, Port: t.Instance.Port,
	}
}

// Pod returns the pod that the instance's mark names.
func (t Target) Pod() lifecycle.PodID {
	name := types.NamespacedName{Namespace: t.Instance.Namespace, Name: t.Instance.Pod}
	return lifecycle.PodID{NamespacedName: name, UID: types.UID(t.Instance.UID)}
}

// Sighting is an entry as one list had it.
type Sighting struct {
	Instance registry.Instance
	State    registry.State
	// AsOf is a time from which on the registry may have been told otherwise.
	AsOf time.Time
	// Confirms: the entry may stand for an acknowledgement of Register.
	Confirms bool
}

func (s Sighting) want() lifecycle.Want {
	if s.State == registry.InService {
		return lifecycle.InService
	}
	return lifecycle.OutOfService
}

// Known reports whether this process has made a change for the instance, or a list or an answer has shown its entry. That a record
// names it is no knowledge.
func (i Instance) Known() bool {
	return i.Attempted() || i.listed != nil || !i.seen.IsZero()
}

// Attempted reports whether this process has made a change for it.
func (i Instance) Attempted() bool { return i.want != "" }

// shows returns what the last change asked for and whether that is acknowledged, else what a list says; nothing where neither is.
func (i Instance) shows() (want lifecycle.Want, acknowledged bool) {
	if !i.Attempted() && i.listed != nil {
		return i.listed.want(), true
	}
	return i.want, i.acknowledged
}

// Stands reports whether the last change asked for the same and was acknowledged.
func (i Instance) Stands(want lifecycle.Want) bool { return i.acknowledged && i.want == want }

// Serves reports whether clients are given the instance: by the last change or else a list, and only by the record if neither tells.
func (i Instance) Serves() bool {
	want, known := i.shows()
	if want == "" && i.entry != nil {
		want, known = i.entry.want, true
	}
	return known && want == lifecycle.InService
}

// Says reports whether the registry has acknowledged that, with weight and metadata where clients are given them.
func (i Instance) Says(want lifecycle.Want, in registry.Instance) bool {
	return i.Stands(want) && (want != lifecycle.InService || i.told.Equal(in))
}

// WasInService reports whether the registry has had the instance in service since this process leads.
func (i Instance) WasInService() bool { return i.wasIn }

// AskedOut reports whether the last change asked to take the instance out, whatever the answer was.
func (i Instance) AskedOut() bool { return i.Attempted() && i.want != lifecycle.InService }

// Settled reports whether the last change began after everything that could have undone it.
func (i Instance) Settled() bool { return !i.began.Before(i.unsettledUntil()) }

// SettlesIn returns for how long a change that timed out may still be carried out; zero or less where none can.
func (i Instance) SettlesIn(now time.Time) time.Duration { return i.unsettledUntil().Sub(now) }

func (i Instance) unsettledUntil() time.Time {
	var latest time.Time
	for other, l := range i.late {
		if other != i.want && l.until.After(latest) {
			latest = l.until
		}
	}
	return latest
}

// AcknowledgedAt is when the registry last acknowledged something; zero where it has not to this process.
func (i Instance) AcknowledgedAt() time.Time { return i.since }

// SeenAt is when the registry was last known to have an entry; zero where this process has not found one.
func (i Instance) SeenAt() time.Time { return i.seen }

// OutAfterGone is when the entry of an application was first taken out whose pod was gone by then; zero where it was not.
func (i Instance) OutAfterGone() time.Time { return i.outAfterGone }

// Missing reports whether an application's entry that was taken out was not there when it was last asked for: the application may have
// registered at another address since.
func (i Instance) Missing() bool { return i.missing }

// Returned reports whether an application's entry that was taken out was found in service again.
func (i Instance) Returned() bool { return i.returned }

// RemovedAt returns when the instance was taken out, which another manager's record may say, and from when its drain
// counts by this one's clock, which reads later than the other's by ahead at most. Both are zero where it was not.
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

// begin is called before a change is made: from here on its outcome is unknown.
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

// letGo is called before the instance is taken away, since nothing may keep it alive from then on. What nothing keeps alive
// counts as acknowledged no more: should the pod stay after all, it is registered again.
func (i Instance) letGo() Instance {
	if i.entry != nil {
		i.entry = &entry{instance: i.entry.instance, want: i.entry.want}
	}
	i.acknowledged, i.removing = false, true
	return i
}

// stay is called when the pod is left as it is: what was to be taken away, and is not known to be, is kept alive again.
func (i Instance) stay() Instance {
	i.removing = false
	return i
}

// kept reports whether there is something to keep alive.
func (i Instance) kept() bool { return i.entry != nil && !i.removing }

func (i Instance) acknowledge(now time.Time) Instance {
	// A Register that was still on its way can have put it in again since the last acknowledgement.
	_, wasIn := i.late[lifecycle.InService]
	if i.want != lifecycle.InService && (wasIn || i.removedAt.IsZero()) {
		i.removedAt = now
	}
	i.acknowledged = true
	return i.landed(i.began, func(w lifecycle.Want) bool { return w == i.want }).known(now)
}

// passOn is called when another pod's application has the place: what a registry says of it is nothing of this pod any more.
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

// saw is called when the registry, asked at that time, had an entry.
func (i Instance) saw(asked time.Time) Instance {
	if asked.After(i.seen) {
		i.seen = asked
	}
	i.missing = false
	return i
}

// fail is called when the change ended in an error. Where lands is not zero, it may still be carried out until then.
func (i Instance) fail(lands time.Time) Instance {
	i.unconfirmed = true
	if i.late = maps.Clone(i.late); i.late == nil {
		i.late = map[lifecycle.Want]late{}
	}
	l := i.late[i.want]
	if lands.IsZero() {
		l.failed = true
	} else if lands.After(l.until) { // an earlier one may have had a longer time-out
		l.until = lands
	}
	i.late[i.want] = l
	return i
}

// landed forgets the changes that could only be carried out before something began that settled what they did: what timed out
// until then, and what failed where that is over.
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

// confirm is called when the registry, asked at that time, said what is wanted.
func (i Instance) confirm(asked time.Time) Instance {
	// A Register that failed can have put the instance in since, and another hand or a late change have taken it out again.
	if _, wasIn := i.late[lifecycle.InService]; wasIn && i.want != lifecycle.InService {
		i.removedAt = asked
	}
	i.unconfirmed = false
	return i.landed(asked, func(lifecycle.Want) bool { return true })
}

// contradict is called when the registry was asked and said something else.
func (i Instance) contradict(state registry.State) Instance {
	i.acknowledged = false
	return i.drainAnew(state)
}

// answered is called when a registry, asked at that time, said what an application's entry is. It reports whether that is
// something else than was acknowledged: an entry that has to be out of service may be absent.
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

// drainAnew begins the drain again where clients are given the instance.
func (i Instance) drainAnew(state registry.State) Instance {
	if state == registry.InService {
		i.removedAt, i.recordedRemoval, i.wasIn = time.Time{}, time.Time{}, true
	}
	return i
}

// givenNoMore is called when clients are not given the instance by another's entry: until just now they may have been.
func (i Instance) givenNoMore(now time.Time) Instance {
	if i.given && i.AskedOut() {
		i.removedAt, i.recordedRemoval = now, time.Time{}
	}
	i.given = false
	return i
}

// recall is called with what the pod's record says. Where the record lies, the registry has no such entry, or one that does
// no harm.
func (i Instance) recall(want lifecycle.Want, in registry.Instance, now time.Time) Instance {
	i.since, i.entry = now, &entry{instance: &in, want: want}
	return i
}

// recallRemoval is called with when the record says that the instance was taken out, before it is taken out again: the
// drain goes on from there.
func (i Instance) recallRemoval(at time.Time) Instance {
	if i.Attempted() || i.listed != nil && i.listed.State == registry.InService && !at.After(i.listed.AsOf) {
		return i
	}
	i.recordedRemoval = at
	return i
}

// sight is called with an entry that a list has. It reports whether the pod has to be looked at, and whether the entry
// differs from what was acknowledged.
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

// compared reports whether a list has the entry as it was acknowledged. Where a second call has not changed what is for
// clients, the registry has no place for it, and a third would not change it either.
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

// miss is called when the registry, asked at that time, had no entry. It reports whether one is lost that clients need; one
// that is out of service is not missed.
func (i Instance) miss(asked time.Time) (after Instance, lost bool) {
	if i.listed != nil && !i.listed.AsOf.After(asked) {
		i.listed = nil
	}
	if i.entry == nil || i.since.After(asked) {
		return i, false
	}
	lost = i.entry.want == lifecycle.InService && !i.removing
	i.entry = nil
	if lost && i.want == lifecycle.InService {
		i.acknowledged = false
	}
	return i, lost
}

// adopt takes an entry that a list has in service for an acknowledgement of Register, as of that list.
func (i Instance) adopt(told registry.Instance) Instance {
	asOf := i.listed.AsOf
	i = i.begin(lifecycle.InService, told, asOf)
	i.acknowledged = true
	return i.known(asOf)
}

// doubt is called when nobody has looked after the registry's entry for a while.
func (i Instance) doubt() Instance {
	i.acknowledged, i.removedAt, i.recordedRemoval = false, time.Time{}, time.Time{}
	return i
}
