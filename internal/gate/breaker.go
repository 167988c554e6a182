package gate

import (
	"context"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// openFor is how long no call is made before the next probe.
	openFor = 5 * time.Second
	// enough callers have to fail. With fewer, their own back-off is all that is needed.
	enough = 5
	// recent is for how long, at least, a service counts that has called.
	recent = 10 * time.Minute
)

// breaker opens when calls of [enough] callers have failed and nobody has got an answer in between: any answer shows that
// the registry can be reached. One service alone may have a trouble of its own. So the callers must be of more than one
// service, or of the only one that has called lately, or something else must have failed meanwhile, see [Gate.Witness].
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	outage Outage

	// callers and failing are the callers and the services that have failed since the last answer.
	callers map[string]bool
	failing map[string]bool
	// witnessed are the services of which something failed that no caller did, until that or a caller is answered.
	witnessed map[string]bool
	// current and before are the services that have called since turned, and in the time before.
	current, before map[string]bool
	turned          time.Time
}

// newBreaker makes one that tells of each change of its state. It is told of them under the lock of its user, since it
// changes in no other way.
func newBreaker(moved func(to gobreaker.State)) *breaker {
	b := &breaker{
		callers: map[string]bool{}, failing: map[string]bool{}, witnessed: map[string]bool{}, current: map[string]bool{},
		turned: time.Now(),
	}
	b.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      openFor,
		ReadyToTrip:  func(gobreaker.Counts) bool { return b.down() },
		IsSuccessful: func(err error) bool { return !failed(err) },
		IsExcluded:   inconclusive,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.began(from, to)
			moved(to)
		},
	})
	return b
}

// sees notes that a service makes calls.
func (b *breaker) sees(service string) {
	if now := time.Now(); now.Sub(b.turned) > recent {
		b.before, b.current, b.turned = b.current, map[string]bool{}, now
	}
	b.current[service] = true
}

// note is called with the outcome of each call before the state machine is.
func (b *breaker) note(c Caller, err error) {
	switch {
	case inconclusive(err):
	case failed(err):
		b.callers[c.ID], b.failing[c.Service], b.outage.Err = true, true, err
	default:
		clear(b.callers)
		clear(b.failing)
		clear(b.witnessed)
	}
}

// witness is called with the outcome of what no caller did. An answer to it takes back only what it said itself: a
// registry may answer it and still be able to change nothing.
func (b *breaker) witness(service string, err error) {
	switch {
	case inconclusive(err):
	case failed(err):
		b.witnessed[service] = true
	default:
		delete(b.witnessed, service)
	}
}

// down reports whether the registry as a whole, and not only a service in it, seems to be down.
func (b *breaker) down() bool {
	return len(b.callers) >= enough && (len(b.failing) > 1 || b.othersFail() || !b.othersCall())
}

// othersFail reports whether something failed of which none of the failing services is the cause.
func (b *breaker) othersFail() bool {
	for service := range b.witnessed {
		if !b.failing[service] {
			return true
		}
	}
	return false
}

// othersCall reports whether a service called lately that has not failed.
func (b *breaker) othersCall() bool {
	for _, seen := range []map[string]bool{b.current, b.before} {
		for service := range seen {
			if !b.failing[service] {
				return true
			}
		}
	}
	return false
}

func (b *breaker) began(from, to gobreaker.State) {
	now := time.Now()
	if from == gobreaker.StateClosed {
		b.outage.Since = now
	}
	if to == gobreaker.StateOpen {
		b.outage.Probe = now.Add(openFor)
	}
}

// untilProbe is a moment more than the breaker stays open, which lets nobody through at the very end of that time.
func (b *breaker) untilProbe() time.Duration { return time.Until(b.outage.Probe) + time.Millisecond }

// BreakerStates are all values of [Status.Breaker].
func BreakerStates() []string {
	return []string{
		stateName(gobreaker.StateClosed), stateName(gobreaker.StateHalfOpen), stateName(gobreaker.StateOpen),
	}
}

func stateName(s gobreaker.State) string {
	switch s {
	case gobreaker.StateHalfOpen:
		return "halfOpen"
	case gobreaker.StateOpen:
		return "open"
	default:
		return "closed"
	}
}

// Inconclusive marks an error that does not tell whether the registry answers: because the call was never made, say.
// Inconclusive(nil) is nil.
func Inconclusive(err error) error {
	if err == nil {
		return nil
	}
	return &inconclusiveError{err: err}
}

// IsInconclusive reports whether an error was marked by [Inconclusive].
func IsInconclusive(err error) bool {
	var i *inconclusiveError
	return errors.As(err, &i)
}

type inconclusiveError struct{ err error }

func (e *inconclusiveError) Error() string { return e.err.Error() }
func (e *inconclusiveError) Unwrap() error { return e.err }

// inconclusive is also what the end of the caller itself leaves behind.
func inconclusive(err error) bool {
	return IsInconclusive(err) || errors.Is(err, context.Canceled)
}

// answered reports whether the error is what a registry said that works.
func answered(err error) bool {
	return registry.IsTerminal(err) || registry.IsNotRegistered(err) || registry.IsForeignEntry(err)
}

// failed reports whether the registry did not answer, or answered that it can't now. A refusal is an answer, and one that
// says when to come back is too: who gets it keeps to it.
func failed(err error) bool {
	if err == nil || inconclusive(err) || answered(err) {
		return false
	}
	_, told := registry.RetryAfterOf(err)
	return !told
}
