package tracker

import (
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// Goal is what has to become of an entry, and what this look at its pod knows of the way there.
type Goal struct {
	Want lifecycle.Want
	// Told is the instance as a change gives it to the registry.
	Told registry.Instance
	// Through is the client for the calls, and Gets says that it can ask for one instance.
	Through any
	Gets    bool
	// MustBeSeen: that the registry has no such entry acknowledges nothing while this process has not seen one.
	MustBeSeen bool
	// Given: by the last list, clients are given the place by an entry that no Rollcall has written, which they are not to be.
	Given bool

	// Asked: the registry was asked in this look, and has confirmed what is wanted. Contradicted is how often it said something else than
	// it had acknowledged, and Said what it said last.
	Asked        bool
	Contradicted int
	Said         registry.State
}

// Act is what a [Step] does.
type Act int

// The acts.
const (
	// Nothing is left to do: the registry says what is wanted, as far as it can be asked, and nothing pending can undo that.
	Nothing Act = iota
	// Change makes the change.
	Change
	// Ask asks the registry for the instance.
	Ask
	// Wait is for what stands in [Step.Cause].
	Wait
)

// Cause is what an entry waits for.
type Cause int

// The causes.
const (
	// Settling: a call that failed may still be carried out, and would undo what was acknowledged.
	Settling Cause = iota + 1
	// Postponed: the registry said when to come back.
	Postponed
	// NotConfirmed: the registry says again and again something else than it has acknowledged.
	NotConfirmed
	// GivenByAnother: clients are given the place by an entry that no Rollcall has written.
	GivenByAnother
	// Unseen: the registry has no such entry, and nobody ever saw one.
	Unseen
)

// Step is the one next thing to do about an entry.
type Step struct {
	Act   Act
	Cause Cause
	// After is when a wait is over; zero or less where no time tells.
	After time.Duration
	// Said is a registry's word when to come back.
	Said Postponement
}

// Postponement is a registry's word when to come back with a change, through a client. An event must not bring it sooner.
type Postponement struct {
	Want    lifecycle.Want
	Through any
	Until   time.Time
	Reason  reason.Reason
	Message string
}

// Next returns the next step towards the goal. For example: a Register timed out and a Deregister was acknowledged after it. Then it is
// Wait while the Register may still be carried out, Ask once it can't be any more, and Nothing once the registry has said that the
// instance is absent; or Change, where it said otherwise.
//
// Where the registry can't be asked, the change is made once more instead, when nothing can be carried out any more that came before.
func (i Instance) Next(g Goal, now time.Time) Step {
	unseen := g.MustBeSeen && (i.seen.IsZero() || i.missing)
	switch {
	case g.Contradicted > 1:
		return Step{Act: Wait, Cause: NotConfirmed}
	case !i.Says(g.Want, g.Told):
		return i.unlessPostponed(Change, g, now)
	case !i.Settled():
		return i.settles(g, now)
	case i.reads(g), unseen && !g.Asked:
		return i.unlessPostponed(Ask, g, now)
	case g.Given:
		return Step{Act: Wait, Cause: GivenByAnother}
	case unseen:
		return Step{Act: Wait, Cause: Unseen}
	}
	return Step{}
}

// settles is the next step where a change that timed out may have been carried out after the one that was acknowledged.
func (i Instance) settles(g Goal, now time.Time) Step {
	switch after := i.SettlesIn(now); {
	case after > 0:
		return Step{Act: Wait, Cause: Settling, After: after}
	case i.reads(g):
		return i.unlessPostponed(Ask, g, now)
	default:
		return i.unlessPostponed(Change, g, now)
	}
}

// reads reports whether the registry has to be asked for what it has acknowledged, and can be.
func (i Instance) reads(g Goal) bool { return i.unconfirmed && g.Gets }

// Certain reports whether the registry has acknowledged what the goal wants, and nothing can have undone that or still will.
func (i Instance) Certain(g Goal) bool { return i.Says(g.Want, g.Told) && i.Settled() && !i.reads(g) }

// unlessPostponed returns the act, unless the registry said to come back with the change later. What it said of another change does
// not count: a registry that takes no more instances must not keep a deleted pod in. Nor does what it said to another client, whose
// credentials may have been the reason.
func (i Instance) unlessPostponed(act Act, g Goal, now time.Time) Step {
	p := i.postponed
	if p == nil || p.Want != g.Want || p.Through != g.Through || !now.Before(p.Until) {
		return Step{Act: act}
	}
	return Step{Act: Wait, Cause: Postponed, After: p.Until.Sub(now), Said: *p}
}
