package tracker

import (
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
//
// Its parts are independent of each other, in parts.go. What concerns more than one of them is here.
type Instance struct {
	asked
	doubt
	kept
	out
	seen
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
func (i Instance) Known() bool { return i.attempted() || i.listed != nil || !i.SeenAt.IsZero() }

// shows returns the last change, else what a list shows, else nothing.
func (i Instance) shows() (want lifecycle.Want, acknowledged bool) {
	if !i.attempted() && i.listed != nil {
		return i.listed.want(), true
	}
	return i.want, i.acknowledged
}

// Serves reports whether clients are given it, by the last change, else a list, else the record.
func (i Instance) Serves() bool {
	want, known := i.shows()
	if want == "" && i.entry != nil {
		want, known = i.entry.want, true
	}
	return known && want == lifecycle.InService
}

// gone reports whether the registry has no entry, and nothing can bring one back.
func (i Instance) gone() bool { return i.Stands(lifecycle.Absent) && i.settled(Goal{}) }

// mayBeThere reports whether the registry has or may have an entry, also if only a record shows it.
func (i Instance) mayBeThere() bool {
	return i.entry != nil || i.listed != nil || i.attempted() && !i.gone()
}

// begin makes the outcome unknown.
func (i Instance) begin(want lifecycle.Want, told registry.Instance, now time.Time) Instance {
	if i.told == nil || !i.told.Equal(told) {
		changed := told
		i.told = &changed
	}
	i.want, i.began, i.acknowledged, i.listed, i.Returned = want, now, false, nil, false
	if want == lifecycle.InService {
		i.out = i.again()
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

func (i Instance) acknowledge(now time.Time) Instance {
	// A late Register can have put it in again since.
	_, wasIn := i.late[lifecycle.InService]
	if i.want != lifecycle.InService && (wasIn || i.removedAt.IsZero()) {
		i.removedAt = now
	}
	i.acknowledged = true
	i.doubt = i.landed(i.began, func(w lifecycle.Want) bool { return w == i.want })
	return i.known(now)
}

// passOn: another pod's application has the endpoint, so the registry's answers are not about this pod.
func (i Instance) passOn(now time.Time) Instance {
	i = i.begin(lifecycle.Absent, registry.Instance{}, now).acknowledge(now)
	i.told = nil
	return i
}

// known notes what the registry has from then on.
func (i Instance) known(since time.Time) Instance {
	i.AcknowledgedAt, i.removing = since, false
	if i.want == lifecycle.InService {
		i.mark, i.WasIn = i.told.Registry, true
		i.seen = i.saw(since)
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

// fail: the change may be carried out until lands, unless that is zero.
func (i Instance) fail(lands time.Time) Instance {
	i.doubt = i.mayLand(i.want, lands)
	return i
}

// confirm: asked then, the registry had what is wanted.
func (i Instance) confirm(asked time.Time) Instance {
	// A failed Register can have put it in, and someone else or a late change taken it out.
	if _, wasIn := i.late[lifecycle.InService]; wasIn && i.want != lifecycle.InService {
		i.removedAt = asked
	}
	i.doubt = i.landed(asked, func(lifecycle.Want) bool { return true })
	i.unconfirmed = false
	return i
}

// contradict: the registry had something else. The drain begins again if clients are given it.
func (i Instance) contradict(state registry.State) Instance {
	i.acknowledged = false
	if state == registry.InService {
		i.out, i.WasIn = i.again(), true
	}
	return i
}

// answered reports whether an application's entry, asked for then, differs from what was acknowledged. If it must be out, absent is fine.
func (i Instance) answered(state registry.State, asked time.Time) (after Instance, differs bool) {
	in := state == registry.InService
	if state != registry.Absent {
		i.seen = i.saw(asked)
	}
	if !i.acknowledged || i.AcknowledgedAt.After(asked) || in == (i.want == lifecycle.InService) {
		i.Missing = i.Missing || state == registry.Absent && i.acknowledged && i.want != lifecycle.InService
		return i, false
	}
	i.Returned = in
	return i.contradict(state), true
}

// givenNoMore: another's entry for it has gone, just now at the latest, so the drain begins.
func (i Instance) givenNoMore(now time.Time) Instance {
	if i.AskedOut() {
		i.removedAt, i.recorded = now, time.Time{}
	}
	i.given = false
	return i
}

// recallRemoval continues the drain of the record, before this process takes it out. A list after that may have it in rotation again, by
// this clock, which is ahead of the record's.
func (i Instance) recallRemoval(at time.Time, ahead time.Duration) Instance {
	earliest := at.Add(min(ahead, 0))
	if i.attempted() || i.listed != nil && i.listed.State == registry.InService && !earliest.After(i.listed.AsOf) {
		return i
	}
	i.recorded = at
	return i
}

// sight takes a listed entry. It reports whether to visit the pod, and whether the entry differs from what was acknowledged.
func (i Instance) sight(s Sighting) (after Instance, look, differs bool) {
	if i.AcknowledgedAt.After(s.AsOf) {
		return i, false, false
	}
	i.mark = s.Instance.Registry
	if i.removing {
		return i, false, false
	}
	differs = i.entry != nil || i.acknowledged
	if i.entry != nil {
		var agrees bool
		i.entry, agrees = i.entry.compared(s)
		if agrees {
			return i, false, false
		}
	}
	if !i.attempted() {
		i.listed = &s
	}
	return i.contradict(s.State), true, differs
}

// miss: asked then, the registry had no entry. It reports whether clients need it; if it is out, none is needed.
func (i Instance) miss(asked time.Time) (after Instance, missed bool) {
	if i.listed != nil && !i.listed.AsOf.After(asked) {
		i.listed = nil
	}
	if i.entry == nil || i.AcknowledgedAt.After(asked) {
		return i, false
	}
	missed = i.entry.want == lifecycle.InService && !i.removing
	i.entry = nil
	if missed {
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
