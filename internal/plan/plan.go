// Package plan says which entries of a pod have to change so that its decision comes true, and in which order. It makes no change, and
// the same facts give the same plan.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// defaultRegistry is the name of a registry that is the only one, which messages leave out.
const defaultRegistry = "default"

// Row is one entry that a pod has, should have, or had once, and what its registry must say of it.
type Row struct {
	tracker.Target

	Want lifecycle.Want
	// LeftToApp: an application's entry may be at the place, and clients may be given that.
	LeftToApp bool
	// MustBeSeen: that there is no such entry acknowledges nothing while nobody has seen one.
	MustBeSeen bool
	// PassedOn: the entry is that of another pod's application by now.
	PassedOn bool
	// NeverThere: no manager can have registered it.
	NeverThere bool
	// OutSince is since when the entry was out by the record of another manager; nil where none says so.
	OutSince *time.Time
}

func (r Row) String() string {
	text := fmt.Sprintf("service %q at %s", r.Instance.Service, r.Instance.Endpoint())
	if r.ByApp() {
		text = "the application's own entry of " + text
	}
	if r.Registry == defaultRegistry {
		return text
	}
	return fmt.Sprintf("%s in registry %q", text, r.Registry)
}

// Asked is the change in the registry's words, which are the same.
func (r Row) Asked() registry.Change {
	return registry.Change{Instance: r.Instance, State: registry.State(r.Want)}
}

// Confirms reports whether a state is what was wanted. Out of service may be absent: some registries know no such state. What
// the application wrote is never removed, and is what clients are given of a pod that leaves a registry to it.
func (r Row) Confirms(state registry.State) bool {
	switch r.Want {
	case lifecycle.InService:
		return state == registry.InService
	case lifecycle.OutOfService:
		return state == registry.OutOfService || state == registry.Absent
	default:
		return state == registry.Absent || state == registry.OutOfService && r.ByApp() || state == registry.Foreign && r.LeftToApp
	}
}

// ByApp reports whether the entry is one that an application has written.
func (r Row) ByApp() bool { return r.Key().ByApp() }

// Plan is a pod's rows in their order. An address that is no longer the pod's goes first, since it may be another pod's
// soon. A service or a registry that the pod departs from goes last where it stays in service, when clients are given the pod in
// all others, so that there is no moment at which they find it nowhere; where it leaves, first.
type Plan struct {
	Former, Present, Departing []Row
}

// Without leaves out rows where the pod belongs.
func (p Plan) Without(out func(Row) bool) Plan {
	p.Present = slices.DeleteFunc(slices.Clone(p.Present), out)
	return p
}

// All are the rows.
func (p Plan) All() []Row { return slices.Concat(p.Former, p.Present, p.Departing) }

// Of returns the plan. A pod that stays as it is leaves only an address that it no longer has, and where it departs from once it
// is in service everywhere that it belongs.
func Of(f Facts, d lifecycle.Decision) Plan {
	var p Plan
	want := d.Want
	keeps := want == lifecycle.Keep
	if keeps && (d.Row == lifecycle.RowUnknownState || f.Pod.Status.PodIP == "") {
		return p
	}
	if !keeps {
		p.Present = f.Present(want)
	}
	for _, in := range f.others(want) {
		r := f.row(f.Target(in), f.away(in, want))
		switch {
		case !f.reaches(in):
			p.Former = append(p.Former, r)
		case !keeps || f.Arrived():
			if want != lifecycle.Absent && staysUnderAnotherName(in, f.Targets) {
				r.Instance.Registry = f.Known.Mark(in)
			}
			p.Departing = append(p.Departing, r)
		}
	}
	return p
}

// Present are the rows of the places where the pod belongs. What takes it out holds under whichever name of the registry
// the entry was written.
func (f Facts) Present(want lifecycle.Want) []Row {
	rows := make([]Row, 0, len(f.Targets))
	for _, t := range f.Targets {
		if want != lifecycle.InService {
			t.Instance.Registry = ""
		}
		rows = append(rows, f.row(t, want))
	}
	return rows
}

func (f Facts) row(t tracker.Target, want lifecycle.Want) Row {
	in := t.Key()
	return Row{
		Target: t, Want: want, LeftToApp: f.leftToApp(in, want), MustBeSeen: f.mustBeSeen(in, want), PassedOn: f.PassedOn[in],
		NeverThere: f.neverThere(in, want), OutSince: f.outSince(in, want),
	}
}

// away is what has to be said of an instance where the pod does not belong. What is out of service at the pod's address stays so for as
// long as the pod is out: no hook that waits for that hangs on a registry that it departs from. Where the application's own entry, at the
// same place, may show only once Rollcall's is gone, that goes.
func (f Facts) away(in lifecycle.Key, want lifecycle.Want) lifecycle.Want {
	out := want == lifecycle.OutOfService && f.reaches(in) && f.Known.Of(in).Stands(lifecycle.OutOfService)
	if out && !f.IsTarget(in.By(lifecycle.Application)) {
		return lifecycle.OutOfService
	}
	return lifecycle.Absent
}

// others are the instances where the pod does not belong.
func (f Facts) others(want lifecycle.Want) []lifecycle.Key {
	return slices.DeleteFunc(f.Instances(), func(in lifecycle.Key) bool {
		return f.IsTarget(in) || (want == lifecycle.InService || want == lifecycle.Keep) && f.isSameEntry(in)
	})
}

// isSameEntry reports whether an application's entry may be that of a target whose service differs in case only: Consul and Eureka
// take both names for one. What takes a pod out takes it out under both.
func (f Facts) isSameEntry(in lifecycle.Key) bool {
	return in.ByApp() && slices.ContainsFunc(f.Targets, func(t tracker.Target) bool {
		target := t.Key()
		target.Service = in.Service
		return target == in && strings.EqualFold(t.Instance.Service, in.Service)
	})
}

// staysUnderAnotherName reports whether the pod departs from a registry and keeps the same instance in another, which may be
// the same server: its entry must be spared if it is the other's by now.
func staysUnderAnotherName(in lifecycle.Key, targets []tracker.Target) bool {
	return slices.ContainsFunc(targets, func(t tracker.Target) bool {
		other := t.Key()
		other.Registry, other.Writer = in.Registry, in.Writer
		return other == in && t.Key().Source() != in.Source()
	})
}
