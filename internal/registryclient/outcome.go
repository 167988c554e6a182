package registryclient

import (
	"errors"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Outcome is what came of a call, and what the metrics call it.
type Outcome string

// The outcomes of calls that were made. What is not known to be final is Retryable.
const (
	Acknowledged Outcome = "ok"
	Retryable    Outcome = "retryable"
	// Refused is final; see [registry.Terminal].
	Refused Outcome = "terminal"
	// TimedOut is of a call whose time was up. A change may still be carried out, see [MayLand].
	TimedOut Outcome = "timeout"
	// NotRegistered is of a heartbeat that found no entry.
	NotRegistered Outcome = "notRegistered"
	// Foreign is of a change that was made while another's entry is in service; see [registry.ForeignEntry].
	Foreign Outcome = "foreignEntry"
)

// The outcomes of calls that were not made. They say nothing about the registry.
const (
	// Queued is of a caller that is woken when a slot is free for it.
	Queued Outcome = "queued"
	// Outage is of a caller that is woken when the registry answers again, or to try whether it does.
	Outage Outcome = "outage"
	// Fenced is of a process that may make no call now, or not with this client any more.
	Fenced Outcome = "fenced"
	// DryRun is of a change that was only told.
	DryRun Outcome = "dryRun"
)

// Asked reports whether the registry was asked.
func (o Outcome) Asked() bool { return o != Queued && o != Outage && o != Fenced && o != DryRun }

// Classify says what came of a call by its error.
func Classify(err error) Outcome {
	var known *outcomeError
	switch {
	case err == nil, registry.IsSeveralEntries(err):
		return Acknowledged
	case errors.As(err, &known):
		return known.outcome
	case registry.IsForeignEntry(err):
		return Foreign
	case registry.IsTerminal(err):
		return Refused
	case registry.IsNotRegistered(err):
		return NotRegistered
	default:
		return Retryable
	}
}

// MayLand reports whether a change that ended in the error may still be carried out: its time was up, or its driver says so.
func MayLand(err error) bool {
	_, may := MayLandUntil(err)
	return may
}

// MayLandUntil returns until when it may be; false where [MayLand] is.
func MayLandUntil(err error) (time.Time, bool) {
	var late *outcomeError
	if !errors.As(err, &late) {
		return time.Time{}, false
	}
	return late.mayLand, !late.mayLand.IsZero()
}

// outcomeError is of a call that was not made, or whose time was up, or that may still be carried out.
type outcomeError struct {
	outcome Outcome
	err     error
	mayLand time.Time
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }
