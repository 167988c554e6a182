package tracker

import (
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// Goal is what an entry should become, and what this visit knows so far.
type Goal struct {
	Want lifecycle.Want
	// Told is what a change sends.
	Told registry.Instance
	// Through is the client; Gets if it can ask for one instance.
	Through any
	Gets    bool
	// MustBeSeen: an entry that this process never saw is not out just because it is not there.
	MustBeSeen bool
	// Late is until when a change to the contrary may be carried out that timed out, and was made by another key of what may be this entry.
	Late time.Time
	// Given: by the last list, clients are given the endpoint by another's entry, and should not be.
	Given bool

	// Asked: in this visit, the registry confirmed the goal. Contradicted counts its other answers, and Said is the last one.
	Asked        bool
	Contradicted int
	Said         registry.State
}

// Act is what a [Step] does.
type Act int

// The acts.
const (
	// Nothing is left: the registry has what is wanted, and nothing pending can undo that.
	Nothing Act = iota
	// Change makes the change.
	Change
	// Ask asks for the instance.
	Ask
	// Wait is for [Step.Cause].
	Wait
)

// Cause is what an entry waits for.
type Cause int

// The causes.
const (
	// Settling: a failed call may still be carried out and undo what was acknowledged.
	Settling Cause = iota + 1
	// Postponed: the registry told when to come back.
	Postponed
	// NotConfirmed: what the registry shows is repeatedly not what it acknowledged.
	NotConfirmed
	// GivenByAnother: clients are given the endpoint by an entry that no Rollcall has written.
	GivenByAnother
	// Unseen: there is no such entry, and there never was.
	Unseen
)

// Step is the one next thing to do for an entry.
type Step struct {
	Act   Act
	Cause Cause
	// After is zero or less if no time ends the wait.
	After time.Duration
	// Said is set if Postponed.
	Said Postponement
}

// Postponement is a registry's word when to come back with a change. No event brings it sooner.
type Postponement struct {
	Want    lifecycle.Want
	Through any
	Until   time.Time
	Reason  reason.Reason
	// Case tells it from others of the same reason.
	Case    string
	Message string
	// Late: as the reason had it when it was reported.
	Late bool
}

// Next returns the next step. The first row that applies counts:
//
//	the registry contradicts itself             Wait, NotConfirmed
//	the last acknowledgement is not the goal    Change
//	a late change can still undo it             Wait, Settling; then Ask, or Change if it can't be asked
//	a change failed, or it must be seen         Ask
//	clients are given another's entry           Wait, GivenByAnother
//	it must be seen, and was not                Wait, Unseen
//	else                                        Nothing
//
// Change and Ask become Wait if the registry asked to come back later. For example, a Register timed out, and a Deregister was acknowledged
// after it: Wait while the Register may be carried out, then Ask, then Nothing if it is absent, else Change.
func (i Instance) Next(g Goal, now time.Time) Step {
	settles := i.settledAfter(g).Sub(now)
	switch {
	case g.Contradicted > 1:
		return Step{Act: Wait, Cause: NotConfirmed}
	case !i.Says(g.Want, g.Told):
		return i.unlessPostponed(Change, g, now)
	case settles > 0:
		return Step{Act: Wait, Cause: Settling, After: settles}
	case i.reads(g):
		return i.unlessPostponed(Ask, g, now)
	case !i.settled(g):
		return i.unlessPostponed(Change, g, now)
	case i.unseen(g) && !g.Asked:
		return i.unlessPostponed(Ask, g, now)
	case g.Given:
		return Step{Act: Wait, Cause: GivenByAnother}
	case i.unseen(g):
		return Step{Act: Wait, Cause: Unseen}
	}
	return Step{}
}

// Certain reports whether the goal was acknowledged, and nothing has undone it or will.
func (i Instance) Certain(g Goal) bool { return i.Says(g.Want, g.Told) && i.settled(g) && !i.reads(g) }

// settled reports whether the last change began after all that could undo it.
func (i Instance) settled(g Goal) bool { return !i.began.Before(i.settledAfter(g)) }

// settledAfter is when the last change must have begun, so that no change that timed out can undo it.
func (i Instance) settledAfter(g Goal) time.Time {
	return later(i.landsUntil(func(want lifecycle.Want) bool { return want != i.want }), g.Late)
}
