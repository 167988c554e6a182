package registryclient

import (
	"errors"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Outcome is a label of the metrics, too.
type Outcome string

// Outcomes of calls that were made. Unknown errors are Retryable.
const (
	Acknowledged Outcome = "ok"
	Retryable    Outcome = "retryable"
	// Refused is final.
	Refused Outcome = "terminal"
	// TimedOut: a change may still take effect; see [MayLand].
	TimedOut      Outcome = "timeout"
	NotRegistered Outcome = "notRegistered"
	// NotYet: made, although clients are not given the result yet.
	NotYet Outcome = "notYet"
	// Foreign: made, although another's entry is in rotation.
	Foreign Outcome = "foreignEntry"
)

// Outcomes of calls that were not made. They don't concern the registry.
const (
	// Queued: the caller is woken when a slot is free.
	Queued Outcome = "queued"
	// Outage: the caller is woken when the registry answers, or to try.
	Outage Outcome = "outage"
	// Fenced: not the leader, or the client is closed.
	Fenced Outcome = "fenced"
	DryRun Outcome = "dryRun"
)

// Asked reports whether a call was made.
func (o Outcome) Asked() bool { return o != Queued && o != Outage && o != Fenced && o != DryRun }

// Classify returns the outcome of a call.
func Classify(err error) Outcome {
	code := registry.CodeOf(err)
	var known *outcomeError
	switch {
	case err == nil, code == registry.CodeSeveralEntries:
		return Acknowledged
	case errors.As(err, &known):
		return known.outcome
	}
	switch code {
	case registry.CodeForeignEntry:
		return Foreign
	case registry.CodeTerminal:
		return Refused
	case registry.CodeNotRegistered:
		return NotRegistered
	case registry.CodeNotYet:
		return NotYet
	case registry.CodeNotApplied, registry.CodeSeveralEntries:
	}
	return Retryable
}

// MayLand reports whether a failed change may still take effect.
func MayLand(err error) bool {
	_, may := MayLandUntil(err)
	return may
}

// MayLandUntil returns until when.
func MayLandUntil(err error) (time.Time, bool) {
	var late *outcomeError
	if !errors.As(err, &late) {
		return time.Time{}, false
	}
	return late.mayLand, !late.mayLand.IsZero()
}

// outcomeError has no mayLand if the call can't take effect any more.
type outcomeError struct {
	outcome Outcome
	err     error
	mayLand time.Time
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }
