// Package receipt holds the flips of hooks against what the registries acknowledged, by the lines that managers wrote. It is pure. Chaos
// has rules of its own.
package receipt

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
)

// ClockSlack is for times that the manager rounds and measures with the clock of another process.
const ClockSlack = 25 * time.Millisecond

// The hooks.
const (
	PreNormal     = "preNormal"
	InPlaceUpdate = "inPlaceUpdate"
	PreDelete     = "preDelete"
)

// Hooks are a workload's handlers by hook: label=value, or a finalizer.
type Hooks map[string][]string

// Serves reports whether the handler is one of the hook.
func (h Hooks) Serves(hook, handler string) bool { return slices.Contains(h[hook], handler) }

// Released says which hook it releases to clear the handler in this state, "" where Kruise does not wait for that, and whether
// that may be done in it at all. A handler of preNormal alone goes whenever the pod is to go out, so that Kruise waits again
// should it change its mind. One that is inPlaceUpdate's too goes only where Kruise does not look at that. In Updating and Updated, one of
// inPlaceUpdate would make the pod count as back.
func (h Hooks) Released(handler, state string, deleting bool) (hook string, allowed bool) {
	is := appspub.LifecycleStateType(state)
	inPlace, goes := h.Serves(InPlaceUpdate, handler), h.Serves(PreDelete, handler)
	switch {
	case deleting:
		return PreDelete, true
	case is == appspub.LifecycleStatePreparingDelete && goes:
		return PreDelete, true
	case is == appspub.LifecycleStatePreparingUpdate && inPlace:
		return InPlaceUpdate, true
	case is == appspub.LifecycleStatePreparingDelete && h.Serves(PreNormal, handler):
		return "", true
	case inPlace && slices.Contains([]appspub.LifecycleStateType{appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated}, is):
		return "", true
	case !inPlace && !goes:
		return "", is != appspub.LifecycleStateNormal
	default:
		return "", false
	}
}

// Asserted says which hook it asserts to set the handler in this state, "" where it only arms the pod, and whether that may
// be done in it at all. A handler that preDelete shares with preNormal arms a pod in Updated, where Kruise does not look at that.
func (h Hooks) Asserted(handler, state string, deleting bool) (hook string, allowed bool) {
	switch is := appspub.LifecycleStateType(state); {
	case deleting || Leaving(state):
		return "", !deleting && is == appspub.LifecycleStateUpdating && h.armsAlone(handler)
	case is == appspub.LifecycleStatePreparingNormal && h.Serves(PreNormal, handler):
		return PreNormal, true
	case is == appspub.LifecycleStateUpdated && h.Serves(InPlaceUpdate, handler):
		return InPlaceUpdate, true
	case is == appspub.LifecycleStateUpdated && h.Serves(PreNormal, handler) && !h.Serves(PreDelete, handler):
		return PreNormal, true // both are set together
	default:
		return "", true
	}
}

// armsAlone reports whether the handler is of preDelete and of no other hook. An update without the hook inPlaceUpdate may have taken it
// away from a pod in rotation, and so it may be set in Updating.
func (h Hooks) armsAlone(handler string) bool {
	return h.Serves(PreDelete, handler) && !h.Serves(InPlaceUpdate, handler) && !h.Serves(PreNormal, handler)
}

// Leaving reports whether it is a state in which a pod is out of service, ready or not.
func Leaving(state string) bool {
	switch appspub.LifecycleStateType(state) {
	case appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStatePreparingDelete:
		return true
	default:
		return false
	}
}

// Op is a change of a registry.
type Op string

// The changes.
const (
	Register   Op = "register"
	FailOver   Op = "fail-over"
	Deregister Op = "deregister"
)

// Changes reports whether the operation changes anything.
func (o Op) Changes() bool { return o == Register || o == FailOver || o == Deregister }

// Key is one instance of one pod in one registry.
type Key struct {
	Registry, Writer, UID, Service, Address string
	Port                                    int
}

// String is the instance without the pod.
func (k Key) String() string {
	registry := k.Registry
	if k.Writer != "" {
		registry += ", written by the " + k.Writer
	}
	return fmt.Sprintf("%s at %s in registry %s", k.Service, net.JoinHostPort(k.Address, strconv.Itoa(k.Port)), registry)
}

// Change is one call that changes an instance. A zero time means: not yet, or never.
type Change struct {
	// Name is what a person finds it by.
	Name string
	Op   Op
	// Applied is when the registry did the work, and Acknowledged when it said so.
	Applied, Acknowledged time.Time
	// Skew is how far the clock behind these times may be from that behind the flip.
	Skew time.Duration
}

func by(when, at time.Time) bool { return !when.IsZero() && !when.After(at) }

// Evidence is what is known of one instance of a pod.
type Evidence struct {
	Key     Key
	Changes []Change
	// Wiped is when the instance went without a change.
	Wiped []time.Time
	// Told reports whether the registry was asked after a time, and had answered by another with a state that is right. Nil is
	// for one that was not asked.
	Told func(after, by time.Time, right func(registry.State) bool) bool
}

// Release is a hook that was released.
type Release struct {
	At time.Time
	// Stays: the pod stays, so out of service is enough; one that goes must be deregistered.
	Stays bool
	// Drain is how long it has to be out before that; 0 where no drain counts.
	Drain time.Duration
}

// FaultOfRelease says why the instance was not out when the hook was released, or nothing.
func (e Evidence) FaultOfRelease(r Release) string {
	in := e.Last(r.At, func(o Op) bool { return o == Register })
	if in == nil { // it never was in service, or was put in before all that is known; nor is known since when it is out
		in, r.Drain = &Change{}, 0
	}
	out, acknowledged := e.takenOut(in.Applied, r.At, r.Stays)
	acknowledged = acknowledged || e.told(in.Applied, r.At, func(s registry.State) bool {
		return s == registry.Absent || s == registry.OutOfService && r.Stays
	})
	drained := r.At.Sub(out.Applied)
	switch {
	case !acknowledged && in.Name == "" && out.Name != "":
		return fmt.Sprintf("and the registry had not acknowledged %s that takes out %s", out.Name, e.Key)
	case !acknowledged && in.Name != "":
		return fmt.Sprintf("and the registry had not acknowledged that %s is out since %s put it in", e.Key, in.Name)
	case !out.Applied.IsZero() && drained < r.Drain-ClockSlack-out.Skew:
		return fmt.Sprintf("%s after %s was taken out, and the drain is %s", drained.Round(time.Millisecond), e.Key, r.Drain)
	default:
		return ""
	}
}

// FaultOfAssert says why the instance was not in service when a hook was asserted at that time, or nothing.
func (e Evidence) FaultOfAssert(at time.Time) string {
	last := e.Last(at, Op.Changes)
	if last == nil {
		return fmt.Sprintf("and the registry was never told of %s", e.Key)
	}
	if last.Op != Register {
		return fmt.Sprintf("and %s had taken out %s", last.Name, e.Key)
	}
	out := e.Last(at, func(o Op) bool { return o != Register })
	for _, c := range e.Changes {
		if c.Op == Register && by(c.Acknowledged, at) && (out == nil || c.Applied.After(out.Applied)) {
			return ""
		}
	}
	if e.told(last.Applied, at, func(s registry.State) bool { return s == registry.InService }) {
		return ""
	}
	return fmt.Sprintf("and the registry had not acknowledged %s that put in %s", last.Name, e.Key)
}

func (e Evidence) told(after, at time.Time, right func(registry.State) bool) bool {
	return e.Told != nil && e.Told(after, at, right)
}

// Last returns the change, of those that match, whose work was done last before the time.
func (e Evidence) Last(at time.Time, match func(Op) bool) (last *Change) {
	for i, c := range e.Changes {
		if match(c.Op) && by(c.Applied, at) && (last == nil || c.Applied.After(last.Applied)) {
			last = &e.Changes[i]
		}
	}
	return last
}

// takenOut returns the first change after a time that took the instance out, and whether one of them had been acknowledged.
// Where there was none, it may have gone, which a list told.
func (e Evidence) takenOut(after, at time.Time, stays bool) (first Change, acknowledged bool) {
	for _, c := range e.Changes {
		if c.Op == Register || !by(c.Applied, at) || c.Applied.Before(after) {
			continue
		}
		if first.Applied.IsZero() || c.Applied.Add(-c.Skew).Before(first.Applied.Add(-first.Skew)) {
			first = c
		}
		acknowledged = acknowledged || (c.Op == Deregister || stays) && by(c.Acknowledged, at)
	}
	if wiped, found := e.WipedBetween(after, at); found && first.Applied.IsZero() {
		first.Applied = wiped
	}
	return first, acknowledged
}

// WipedBetween returns when the instance first went between two times.
func (e Evidence) WipedBetween(after, before time.Time) (at time.Time, found bool) {
	i := slices.IndexFunc(e.Wiped, func(t time.Time) bool { return t.After(after) && !t.After(before) })
	if i < 0 {
		return time.Time{}, false
	}
	return e.Wiped[i], true
}
