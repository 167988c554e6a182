// Package plan says which changes of the registries make a pod's decision come true, and in which order. It makes none of them, and
// the same facts give the same plan.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// defaultRegistry is the name of a registry that is the only one, which messages leave out.
const defaultRegistry = "default"

// Change is one target and what its registry must say of it.
type Change struct {
	tracker.Target

	Want lifecycle.Want
}

func (c Change) String() string {
	text := fmt.Sprintf("service %q at %s", c.Instance.Service, c.Instance.Endpoint())
	if c.ByApp() {
		text = "the application's own entry of " + text
	}
	if c.Registry == defaultRegistry {
		return text
	}
	return fmt.Sprintf("%s in registry %q", text, c.Registry)
}

// Asked is the change in the registry's words, which are the same.
func (c Change) Asked() registry.Change {
	return registry.Change{Instance: c.Instance, State: registry.State(c.Want)}
}

// Confirms reports whether a state is what was wanted. Out of service may be absent: some registries know no such state. What
// the application wrote is never removed, and is what clients are given of a pod that leaves a registry to it.
func (c Change) Confirms(state registry.State, leavesToApp bool) bool {
	switch c.Want {
	case lifecycle.InService:
		return state == registry.InService
	case lifecycle.OutOfService:
		return state == registry.OutOfService || state == registry.Absent
	default:
		return state == registry.Absent || state == registry.OutOfService && c.ByApp() || state == registry.Foreign && leavesToApp
	}
}

// ByApp reports whether the entry is one that an application has written.
func (c Change) ByApp() bool { return c.Key().ByApp() }

// Plan is a pod's changes in their order. An address that is no longer the pod's goes first, since it may be another pod's
// soon. A service or a registry that the pod departs from goes last where it stays in service, when clients are given the pod in
// all others, so that there is no moment at which they find it nowhere; where it leaves, first.
type Plan struct {
	FormerAddresses, Present, Departing []Change
}

// Without leaves out changes for places where the pod belongs.
func (p Plan) Without(out func(Change) bool) Plan {
	p.Present = slices.DeleteFunc(slices.Clone(p.Present), out)
	return p
}

// All are the changes.
func (p Plan) All() []Change { return slices.Concat(p.FormerAddresses, p.Present, p.Departing) }

// Facts are what a plan rests on.
type Facts struct {
	Row  lifecycle.Row
	Want lifecycle.Want
	// Address is the pod's; empty where it has none. Others are those at which its application may have registered too.
	Address string
	Others  []string
	// Targets are where the pod belongs.
	Targets []tracker.Target
	// Instances are all that may be in a registry, by what this process knows and by the record.
	Instances map[lifecycle.Recorded]bool
	// Target marks an instance as the pod's.
	Target func(lifecycle.Recorded) tracker.Target
	// Arrived reports whether the pod is known to be in service everywhere that it belongs.
	Arrived func() bool
	// Tracked is what is known of the instances.
	Tracked *tracker.Pod
}

// Of returns the plan. A pod that stays as it is leaves only an address that it no longer has, and where it departs from once it
// is in service everywhere that it belongs.
func Of(f Facts) Plan {
	var p Plan
	keeps := f.Want == lifecycle.Keep
	if keeps && (f.Row == lifecycle.RowUnknownState || f.Address == "") {
		return p
	}
	if !keeps {
		p.Present = Present(f.Targets, f.Want)
	}
	for _, in := range f.others() {
		c := Change{Target: f.Target(in), Want: f.away(in)}
		switch {
		case !f.has(in):
			p.FormerAddresses = append(p.FormerAddresses, c)
		case !keeps || f.Arrived():
			if f.Want != lifecycle.Absent && staysUnderAnotherName(in, f.Targets) {
				c.Instance.Registry = f.Tracked.Mark(in)
			}
			p.Departing = append(p.Departing, c)
		}
	}
	return p
}

func (f Facts) has(in lifecycle.Recorded) bool {
	return in.Address == f.Address || in.ByApp() && slices.Contains(f.Others, in.Address)
}

// away is what has to be said of an instance where the pod does not belong. What is out of service at the pod's address stays so for as
// long as the pod is out: no hook that waits for that hangs on a registry that it departs from. Where the application's own entry, at the
// same place, may show only once Rollcall's is gone, that goes.
func (f Facts) away(in lifecycle.Recorded) lifecycle.Want {
	out := f.Want == lifecycle.OutOfService && f.has(in) && f.Tracked.Standing(in).Stands(lifecycle.OutOfService)
	in.Writer = lifecycle.Application
	if out && !slices.ContainsFunc(f.Targets, func(t tracker.Target) bool { return t.Key() == in }) {
		return lifecycle.OutOfService
	}
	return lifecycle.Absent
}

// others are the instances where the pod does not belong.
func (f Facts) others() (others []lifecycle.Recorded) {
	for in := range f.Instances {
		if !slices.ContainsFunc(f.Targets, func(t tracker.Target) bool { return t.Key() == in || f.isSameEntry(t.Key(), in) }) {
			others = append(others, in)
		}
	}
	slices.SortFunc(others, lifecycle.Recorded.Compare)
	return others
}

// Present are the changes for the places where the pod belongs. What takes it out holds under whichever name of the registry
// the entry was written.
func Present(targets []tracker.Target, want lifecycle.Want) []Change {
	changes := make([]Change, 0, len(targets))
	for _, t := range targets {
		if want != lifecycle.InService {
			t.Instance.Registry = ""
		}
		changes = append(changes, Change{Target: t, Want: want})
	}
	return changes
}

// isSameEntry reports whether an application's entry may be that of a target whose service differs in case only: Consul and Eureka
// take both names for one. What takes a pod out takes it out under both.
func (f Facts) isSameEntry(target, in lifecycle.Recorded) bool {
	same := (f.Want == lifecycle.InService || f.Want == lifecycle.Keep) && in.ByApp() && strings.EqualFold(target.Service, in.Service)
	target.Service = in.Service
	return same && target == in
}

// staysUnderAnotherName reports whether the pod departs from a registry and keeps the same instance in another, which may be
// the same server: its entry must be spared if it is the other's by now.
func staysUnderAnotherName(in lifecycle.Recorded, targets []tracker.Target) bool {
	return slices.ContainsFunc(targets, func(t tracker.Target) bool {
		other := t.Key()
		other.Registry, other.Writer = in.Registry, in.Writer
		return other == in && t.Key().Source() != in.Source()
	})
}
