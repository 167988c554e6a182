// Package waiting says why a pod is not yet where it must be, and which one of several reasons is shown.
package waiting

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// RolloutPatience is how long a rollout waits for one pod before its workload gets an Event, and how long writes of a pod fail
	// before the pod shows it.
	RolloutPatience = time.Minute
	// Longest is when to look again at the latest at what fails. It is short on purpose: a pod that waits is capacity that is missing.
	Longest = 30 * time.Second
)

// Blocker is why a pod is not yet where it must be; the zero Blocker is none.
type Blocker struct {
	Hook    lifecycle.Hook
	Reason  reason.Reason
	Message string
	Since   time.Time
	// Said is when an Event last said so; zero where none has, since the wait is part of any rollout.
	Said time.Time
	// After is when the reconciler looks again without an event; zero where an event will come.
	After time.Duration
	// Unasked: a registry that may well answer has yet to be asked, whatever else is missing.
	Unasked bool
}

// First returns the one of several that is shown: the first that is more than a turn yet to come. The one that is due soonest says when to
// look again.
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

// Lasts reports whether something is missing that is more than a turn yet to come, or stays so since the manager stops.
func (b Blocker) Lasts(stops bool) bool {
	return b.Reason != "" && (!b.Unasked || stops)
}

// Sentence says what waits for what.
func (b Blocker) Sentence() string {
	if b.Hook == "" {
		return b.Message
	}
	return fmt.Sprintf("hook %s waits: %s", b.Hook, b.Message)
}

// WaitsLike reports whether both wait with the same hook for the same reason, and for a drain that is as long.
func (b Blocker) WaitsLike(other Blocker) bool {
	return b.Hook == other.Hook && b.Reason == other.Reason && (b.Reason != reason.Draining || b.Message == other.Message)
}

// OfAgent returns the blocker of an error as an agent's, where an agent has failed and not the registry.
func (b Blocker) OfAgent(err error) Blocker {
	if registry.IsOfAgent(err) {
		b.Reason = reason.AgentUnavailable
		if registry.IsTerminal(err) {
			b.Reason = reason.AgentRefused
		}
	}
	return b
}

// Say returns the blocker as it is said, and whether an Event is due for it, where another was shown before. One that will have an
// Event is looked at again then.
func (b Blocker) Say(before Blocker, now time.Time) (said Blocker, due bool) {
	late := b.Since.Add(reason.Patience)
	switch {
	case b.Reason.Late() && now.Before(late):
		b.After = cmp.Or(b.After, late.Sub(now))
		return b, false
	case b.Reason.Event() == "":
		return b, false
	case b.Reason == before.Reason && (b.Hook == before.Hook || b.Hook == "") && now.Before(before.Said.Add(reason.EventRepeat)):
		b.Said = before.Said
		return b, false
	}
	b.Said = now
	return b, true
}

// InPlaceOf returns the blocker to show where another was shown before: while a registry has yet to be asked again, nothing new is
// known.
func (b Blocker) InPlaceOf(before Blocker) Blocker {
	if b.Reason.BeforeTheCall() && before.Reason.NeedsAnotherCall() {
		before.After = b.After
		return before
	}
	return b
}
