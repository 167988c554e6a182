// Package waiting explains why a pod is not where it must be.
package waiting

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// RolloutPatience is how long a rollout waits before its workload gets an Event, and writes fail before the pod shows it.
	RolloutPatience = time.Minute
	// Longest delay before a retry: a pod that waits is missing capacity.
	Longest = 30 * time.Second
)

// Blocker is why a pod is not where it must be.
type Blocker struct {
	Hook   lifecycle.Hook
	Reason reason.Reason
	// Case is which case of the reason it is, if another one deserves an Event of its own.
	Case    Case
	Message string
	Since   time.Time
	// Said is when it last had an Event, if it needs one.
	Said time.Time
	// After is when to look again without an event.
	After time.Duration
	// BacksOff: look again later each time, which sets After.
	BacksOff bool
	// Unasked: a registry is yet to be asked.
	Unasked bool
	// Calm: it passes by itself, and makes no Event.
	Calm bool
	// Late: it is part of any rollout, and makes its Event only after [reason.Patience], as if its reason were [reason.Reason.Late].
	Late bool
}

// Case tells blockers of one reason apart, whose remedy is the same.
type Case string

// The cases that follow one another on a pod.
const (
	OtherName  Case = "the registry has the endpoint under another name"
	Detached   Case = "out of rotation, since its CloneSet has lost it"
	MissedEnd  Case = "its end can't be read"
	Misspelled Case = "Rollcall does not know a name"
	WithoutIP6 Case = "its metadata lacks an IPv6 address"
	OfInjected Case = "its port is that of an injected container"
	OfVirtual  Case = "its address is vCluster's"
	OfBalancer Case = "a cloud load balancer keeps it"
	OfAnAgent  Case = "the agent of the application's entry failed"
	Unread     Case = "what it rests on can't be read"
)

// First returns the first blocker that is not just Queued, with the soonest After.
func First(all ...Blocker) (first Blocker) {
	for _, b := range all {
		first = first.and(b)
	}
	return first
}

func (b Blocker) and(other Blocker) Blocker {
	unasked := b.Unasked || other.Unasked
	b.Unasked, other.Unasked = unasked, unasked
	switch {
	case b.Reason == "":
		return other
	case b.Reason == reason.Queued && other.Reason != "" && other.Reason != reason.Queued:
		return other.and(b)
	case other.Reason != "" && other.After > 0 && (b.After == 0 || other.After < b.After):
		b.After = other.After
	}
	return b
}

// Done reports whether nothing is missing. What a dry run would do counts as done, so that it can report what would follow.
func Done(held []Blocker) bool {
	return !slices.ContainsFunc(held, func(b Blocker) bool { return b.Reason != reason.DryRun })
}

// Lasts reports whether more than a turn is missing, or no turn will come.
func (b Blocker) Lasts(stops bool) bool {
	return b.Reason != "" && (!b.Unasked || stops)
}

// Sentence is for people.
func (b Blocker) Sentence() string {
	if b.Hook == "" {
		return b.Message
	}
	return fmt.Sprintf("hook %s waits: %s", b.Hook, b.Message)
}

// OfAgent blames the agent if it failed, not the registry.
func (b Blocker) OfAgent(err error) Blocker {
	if registry.IsOfAgent(err) {
		b.Reason, b.Case = reason.RegistryUnavailable, OfAnAgent
		if registry.CodeOf(err) == registry.CodeTerminal {
			b.Reason = reason.RegistryRefused
		}
	}
	return b
}

// Say sets Said, and After if an Event is to come. It reports whether one is due.
func (b Blocker) Say(before Blocker, now time.Time) (said Blocker, due bool) {
	late := b.Since.Add(reason.Patience)
	switch {
	case (b.Late || b.Reason.Late()) && now.Before(late):
		b.After = cmp.Or(b.After, late.Sub(now))
		return b, false
	case b.Calm || b.Reason.Event() == "":
		return b, false
	case b.repeats(before) && now.Before(before.Said.Add(reason.EventRepeat)):
		b.Said = before.Said
		return b, false
	}
	b.Said = now
	return b, true
}

// Same reports whether both are one reason, and one case of it.
func (b Blocker) Same(as Blocker) bool { return b.Reason == as.Reason && b.Case == as.Case }

func (b Blocker) repeats(before Blocker) bool {
	return b.Same(before) && (b.Hook == before.Hook || b.Hook == "")
}

// InPlaceOf returns before if nothing new is known: its registry was not asked again.
func (b Blocker) InPlaceOf(before Blocker) Blocker {
	if b.Reason.BeforeTheCall() && (b.Unasked || b.Calm) && before.Reason.NeedsAnotherCall() {
		before.After = b.After
		return before
	}
	return b
}
