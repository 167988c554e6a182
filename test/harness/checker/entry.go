package checker

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// clockSlack is for times that a manager rounds and measures with the clock of another process.
const clockSlack = 25 * time.Millisecond

// Op is one operation of the registry's protocol, by the last part of its path. What changes nothing asks.
type Op string

// The operations that change something.
const (
	Register   Op = "register"
	FailOver   Op = "fail-over"
	Deregister Op = "deregister"
)

// Changes reports whether the operation changes anything.
func (o Op) Changes() bool { return o == Register || o.takesOut() }

func (o Op) takesOut() bool { return o == FailOver || o == Deregister }

// Key is one entry of one pod in one registry.
type Key struct {
	Registry, UID, Service, Address string
	Port                            int
}

// KeyOf is that of an instance in the registry of a name.
func KeyOf(name string, in registry.Instance) Key {
	return Key{Registry: name, UID: in.UID, Service: in.Service, Address: in.Address, Port: in.Port}
}

// String is the entry without the pod.
func (k Key) String() string {
	return fmt.Sprintf("%s at %s in registry %s", k.Service, net.JoinHostPort(k.Address, strconv.Itoa(k.Port)), k.Registry)
}

// change is one call that changed an entry, or the entry's application. A zero time means: not yet, or never.
type change struct {
	// name is what a person finds it by.
	name string
	op   Op
	// done is when the registry did the work, and answered when it acknowledged that.
	done, answered time.Time
}

// life is the history of one entry, for the rules below. It is a value, and they are pure.
type life struct {
	key     Key
	changes []change
	// lost is when the entry went without a change, in the order of time.
	lost []time.Time
	// shown reports whether a list that was made after a time, and answered by another, had the entry in a state that is right. Nil: there
	// was no list.
	shown func(after, by time.Time, right func(registry.State) bool) bool
}

// release is a hook that was released.
type release struct {
	at time.Time
	// stays: the pod stays, so out of service is enough. A pod that goes must be absent.
	stays bool
	// drain is how long the entry has to be out by then.
	drain time.Duration
}

// upTo are the changes up to a time, in the order in which the registry did them.
func (l life) upTo(at time.Time) (all []change) {
	for _, c := range l.changes {
		if !c.done.IsZero() && !c.done.After(at) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return a.done.Compare(b.done) })
	return all
}

// last is the change that was done last up to a time; its name is empty if there is none.
func (l life) last(at time.Time) (last change) {
	if all := l.upTo(at); len(all) > 0 {
		last = all[len(all)-1]
	}
	return last
}

// in reports whether the last change put the entry into rotation, whether or not it was lost since.
func (l life) in(at time.Time) bool { return l.last(at).op == Register }

// split returns what put the entry in last up to a time, and what took it out since.
func (l life) split(at time.Time) (in change, outs []change) {
	for _, c := range l.upTo(at) {
		if c.op == Register {
			in, outs = c, nil
		} else {
			outs = append(outs, c)
		}
	}
	return in, outs
}

// releasedEarly is I1: an entry that was ever put in has been taken out by an acknowledged call, or a list shows that it is out, and the
// drain has passed since.
func (l life) releasedEarly(r release) string {
	in, outs := l.split(r.at)
	acknowledged := l.toldOut(in, outs, r)
	switch {
	case !acknowledged && in.name != "":
		return fmt.Sprintf("and the registry had not acknowledged that %s is out since %s put it in", l.key, in.name)
	case !acknowledged && len(outs) > 0:
		return fmt.Sprintf("and the registry had not acknowledged %s that takes out %s", outs[0].name, l.key)
	case in.name == "": // it was in before all that is known, if ever
		return ""
	}
	out := l.lostBetween(in.done, r.at)
	if len(outs) > 0 {
		out = outs[0].done
	}
	if drained := r.at.Sub(out); drained < r.drain-clockSlack { // a zero time is long ago
		return fmt.Sprintf("%s after %s was taken out, and the drain is %s", drained.Round(time.Millisecond), l.key, r.drain)
	}
	return ""
}

// toldOut reports whether the registry has told by then that the entry is as far out as the release needs.
func (l life) toldOut(in change, outs []change, r release) bool {
	enough := func(c change) bool { return acked(c, r.at) && (r.stays || c.op == Deregister) }
	return slices.ContainsFunc(outs, enough) || l.shows(in.done, r.at, func(s registry.State) bool {
		return s == registry.Absent || r.stays && s == registry.OutOfService
	})
}

// assertedEarly is I2: an entry was put in by an acknowledged call, or a list shows that it is in, and nothing took it out since.
// Clients that take a while to notice have had the time.
func (l life) assertedEarly(at time.Time, lag time.Duration) string {
	last := l.last(at)
	switch {
	case last.name == "":
		return fmt.Sprintf("and the registry was never told of %s", l.key)
	case last.op != Register:
		return fmt.Sprintf("and %s had taken out %s", last.name, l.key)
	}
	switch told := l.acknowledgedIn(at); {
	case at.Sub(told) < lag-clockSlack:
		return fmt.Sprintf("%s after the registry acknowledged %s, of which clients take %s to notice",
			at.Sub(told).Round(time.Millisecond), l.key, lag)
	case !told.IsZero(), l.shows(last.done, at, func(s registry.State) bool { return s == registry.InService }):
		return ""
	default:
		return fmt.Sprintf("and the registry had not acknowledged %s that put in %s", last.name, l.key)
	}
}

// acknowledgedIn is when it was first acknowledged that the entry is in, since it was taken out last; zero if it was not.
func (l life) acknowledgedIn(at time.Time) (first time.Time) {
	for _, c := range l.upTo(at) {
		switch {
		case c.op != Register:
			first = time.Time{}
		case acked(c, at): // answers may overtake each other
			first = soonest(first, c.answered)
		}
	}
	return first
}

func acked(c change, at time.Time) bool { return !c.answered.IsZero() && !c.answered.After(at) }

func (l life) shows(after, by time.Time, right func(registry.State) bool) bool {
	return l.shown != nil && l.shown(after, by, right)
}

// lostBetween is when the entry first went without a change between two times; zero if it did not.
func (l life) lostBetween(after, by time.Time) time.Time {
	for _, lost := range l.lost {
		if lost.After(after) && !lost.After(by) {
			return lost
		}
	}
	return time.Time{}
}
