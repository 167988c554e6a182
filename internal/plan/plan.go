// Package plan decides which entries of a pod have to change, and in which order. It is pure. What an entry must become follows from its
// [Place], and what shows that it is out is its [Proof]; the table is in docs/architecture.md.
//
// For example, a pod that moves from Consul to Nacos is registered in Nacos first, and one that ends leaves both.
package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// defaultRegistry is omitted from messages: it is the only one.
const defaultRegistry = "default"

// Row is one entry that the pod has, should have or had, and what its registry must say.
type Row struct {
	tracker.Target

	Want lifecycle.Want
	// Proof is what shows that it is out, if it must be.
	Proof Proof
	// LeftToApp: clients may be given an application's entry at the endpoint.
	LeftToApp bool
	// OutSince is by another manager's record; nil if that does not show it.
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

// Confirms reports whether the state is what is wanted:
//
//	InService      in rotation
//	OutOfService   out of rotation, or absent: some registries know no such state
//	Absent         absent; an application's entry, which is never removed, may be out; left to an application, it may be foreign
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

// ByApp reports whether an application has written the entry.
func (r Row) ByApp() bool { return r.Key().ByApp() }

// Plan is a pod's rows, in the order of the package's table.
type Plan struct {
	Former, Present, Departing []Row
	// Spared have no row while the pod is in rotation, since they may be entries where it belongs. They are taken out with it.
	Spared []lifecycle.Key
	// Unheard are entries that only the record shows, beyond [MaxHeard].
	Unheard []lifecycle.Key
}

// Without leaves out some of Present.
func (p Plan) Without(out func(Row) bool) Plan {
	p.Present = slices.DeleteFunc(slices.Clone(p.Present), out)
	return p
}

// All are the rows in order.
func (p Plan) All() []Row { return slices.Concat(p.Former, p.Present, p.Departing) }

// Of returns the plan. A pod that stays as it is leaves only former addresses, and once in rotation where it belongs, what it departs from.
func Of(f Facts, d lifecycle.Decision) Plan {
	var p Plan
	want := d.Want
	keeps, serves := want == lifecycle.Keep, slices.Contains([]lifecycle.Want{lifecycle.Keep, lifecycle.InService}, want)
	if keeps && (d.Row == lifecycle.RowUnknownState || f.AddressUnknown) {
		return p
	}
	f, p.Unheard = f.indexed()
	if !keeps {
		p.Present = f.Present(want)
	}
	for _, in := range f.others() {
		switch place := f.placeOf(in); {
		case serves && place == Same:
			p.Spared = append(p.Spared, in)
		case place == Former:
			p.Former = append(p.Former, f.row(f.Target(in), lifecycle.Absent))
		case !keeps || f.Arrived():
			p.Departing = append(p.Departing, f.departs(in, want))
		}
	}
	p.Spared = slices.DeleteFunc(p.Spared, func(in lifecycle.Key) bool {
		e := f.entry(in)
		return e.known.IsOut() || e.isCalledAsTarget()
	})
	return p
}

// departs takes out an entry where the pod does not belong. One that stays out does so while the pod is out.
func (f Facts) departs(in lifecycle.Key, pod lifecycle.Want) Row {
	e, want := f.entry(in), lifecycle.Absent
	if pod == lifecycle.OutOfService && e.staysOut() {
		want = pod
	}
	r := f.row(f.Target(in), want)
	if pod != lifecycle.Absent && e.staysUnderAnotherName() {
		r.Instance.Registry = f.Known.Mark(in)
	}
	return r
}

// Present are where the pod belongs. What takes it out has no registry, so it holds under a former name too.
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
	e := f.entry(t.Key())
	return Row{Target: t, Want: want, Proof: e.proof(want), LeftToApp: e.leftToApp(want), OutSince: e.outSince(want)}
}

// others are where the pod does not belong.
func (f Facts) others() []lifecycle.Key {
	return slices.DeleteFunc(f.Instances(), f.IsTarget)
}
