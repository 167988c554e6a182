package plan

import (
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// Place is where an entry is: the first that applies.
type Place int

// The places.
const (
	// Here is where the pod belongs.
	Here Place = iota
	// Same may be an entry where the pod belongs, by another key: to take it out could take the pod out there.
	Same
	// Former is at an address that the pod does not have: another pod may get it.
	Former
	// Elsewhere is where the pod does not belong, or belongs no more.
	Elsewhere
)

func (p Place) String() string { return [...]string{"Here", "Same", "Former", "Elsewhere"}[p] }

// placeOf returns the place of an entry where the pod does not belong.
func (f Facts) placeOf(in lifecycle.Key) Place {
	switch {
	case f.MayBeTargets(in):
		return Same
	case !in.IsAt(f.Pod):
		return Former
	}
	return Elsewhere
}

// MayBeTargets reports whether the entry may be a target's by another key.
func (f Facts) MayBeTargets(in lifecycle.Key) bool {
	return in.IsAt(f.Pod) && slices.ContainsFunc(f.Targets, func(t tracker.Target) bool { return f.Configuration.MayBeOne(in, t.Key()) })
}

// Proof is what shows that an entry is out, if it must be: the first that applies.
type Proof int

// The proofs.
const (
	// Plain: the registry acknowledges it.
	Plain Proof = iota
	// Never: no manager can have registered it, so it is out.
	Never
	// Lost: another pod's application has it, or nothing is left to call, so no answer is about this pod.
	Lost
	// Remains: it is an application's, and its pod is gone; it is kept out until it has gone too.
	Remains
	// Sought: it is an application's that nobody has seen, so that there is none shows nothing until one was looked for.
	Sought
)

func (p Proof) String() string { return [...]string{"Plain", "Never", "Lost", "Remains", "Sought"}[p] }

func (e entry) proof(want lifecycle.Want) Proof {
	switch {
	case e.neverThere(want):
		return Never
	case e.passedOn(want):
		return Lost
	case e.Gone && e.in.ByApp():
		return Remains
	case e.mustBeSeen(want):
		return Sought
	}
	return Plain
}
