package registryclient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	openFor = 5 * time.Second
	// enough: fewer are slowed down by their own backoff.
	enough = 5
)

// errSilent: the outcome does not show whether the registry answers.
var errSilent = errors.New("the call did not return")

// breaker opens when 5 callers have failed without an answer in between, and then lets one call through every 5 s.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	// queue has the caller woken when the breaker lets calls through.
	queue func(*call)
	// apart: each caller asks a server of its own, and the failure of one means nothing for others. It never opens.
	apart bool

	mu sync.Mutex
	// callers have failed since the last answer.
	callers     map[string]bool
	failure     error
	since, next time.Time
}

func newBreaker() *breaker {
	b := &breaker{callers: map[string]bool{}}
	b.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   1,
		Timeout:       openFor,
		ReadyToTrip:   func(gobreaker.Counts) bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.callers) >= enough },
		IsExcluded:    func(err error) bool { return errors.Is(err, errSilent) },
		OnStateChange: func(_ string, from, to gobreaker.State) { b.moved(from, to) },
	})
	return b
}

func (b *breaker) pass(ctx context.Context, c *call, next handler) (err error) {
	done, refused := b.Allow()
	if refused != nil {
		b.queue(c)
		return b.outage()
	}
	verdict := errSilent
	defer func() {
		b.note(c, verdict)
		done(verdict)
		// It is woken with the others, whatever its backoff. If nothing was learned, half open, that would be a loop.
		if verdict != nil && !errors.Is(verdict, errSilent) && b.State() != gobreaker.StateClosed {
			b.queue(c)
		}
	}()
	err = next(ctx, c)
	verdict = verdictOf(c, err)
	if b.apart && Classify(err).Asked() {
		return registry.OfAgent(err)
	}
	return err
}

// verdictOf is nil for an answer (even a refusal or a Retry-After), errSilent if nothing was learned, else the failure.
func verdictOf(c *call, err error) error {
	outcome := Classify(err)
	_, told := registry.RetryAfterOf(err)
	switch {
	case !outcome.Asked(), errors.Is(err, context.Canceled):
		return errSilent
	case c.Operation == probe && err != nil && outcome != TimedOut:
		return errSilent // it may mean "not yet"
	case told || outcome != Retryable && outcome != TimedOut:
		return nil
	default:
		return err
	}
}

// note must come before done, which reads callers.
func (b *breaker) note(c *call, verdict error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if verdict == nil || b.apart {
		clear(b.callers)
	} else if !errors.Is(verdict, errSilent) {
		b.callers[failing(c, verdict)], b.failure = true, verdict
	}
}

// failing is who counts as having failed. Reads of one service that time out are one: it may be large, and others are not.
func failing(c *call, err error) string {
	if !c.changes() && Classify(err) == TimedOut {
		return "reads of service " + c.Instance.Service
	}
	return c.ID
}

func (b *breaker) moved(from, to gobreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from == gobreaker.StateClosed {
		b.since = time.Now()
	}
	if to == gobreaker.StateOpen {
		b.next = time.Now().Add(openFor)
	}
}

func (b *breaker) lets() int {
	state, counts := b.State(), b.Counts()
	switch {
	case state == gobreaker.StateClosed:
		return math.MaxInt
	case state == gobreaker.StateHalfOpen && counts.Requests <= counts.TotalExclusions:
		return 1
	default:
		return 0
	}
}

func (b *breaker) outage() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &outcomeError{outcome: Outage, err: fmt.Errorf("no call is made: the circuit breaker is open since %s, tries one call at "+
		"%s, and then every 5 s; the last failure: %w", b.since.Format(time.RFC3339), b.next.Format(time.RFC3339), b.failure)}
}

func (b *breaker) status() string {
	return strings.Replace(b.State().String(), "half-open", "halfOpen", 1)
}
