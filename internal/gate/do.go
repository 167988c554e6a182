package gate

import (
	"context"
	"errors"
	"fmt"
)

// ErrUnfinished is what leave is told of a call that ended in a panic.
var ErrUnfinished = Inconclusive(errors.New("the call did not return"))

// Do makes the call when it is the caller's turn, and returns its error. It waits for the turn until ctx ends, so it is for
// goroutines that nobody waits for; the caller's Wake is not used. An error of its own says that no call was made.
func (g *Gate) Do(ctx context.Context, c Caller, call func() error) error {
	turn := make(chan struct{}, 1)
	c.Wake = func() {
		select {
		case turn <- struct{}{}:
		default: // it lost the turn that it has yet to come to, and has another now
		}
	}
	defer g.withdraw(c.ID)
	for {
		leave, refused := g.Enter(c)
		if refused == nil {
			return finish(leave, call)
		}
		g.EndVisit(c.ID)
		select {
		case <-turn:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a turn%s: %w", refused, ctx.Err())
		}
	}
}

func finish(leave func(error), call func() error) error {
	err := ErrUnfinished
	defer func() { leave(err) }()
	err = call()
	return err
}

// withdraw gives up whatever place or turn the caller has.
func (g *Gate) withdraw(id string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiters[id] {
		g.giveBack(w)
		g.forget(w)
	}
	g.advance()
}

// String is empty where the breaker is closed.
func (r *Refusal) String() string {
	if r.Outage == nil {
		return ""
	}
	return fmt.Sprintf(" (the circuit breaker is open; the last failure: %v)", r.Outage.Err)
}
