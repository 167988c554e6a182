package registryclient

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// listTimeouts is how many times as long as a change a list may take: it is one call with all that there is.
const listTimeouts = 6

// mayLandFor is how long after its beginning a change may still be carried out: one that has timed out, or that a gateway has lost
// sight of, may be on its way for as long again.
func (o Options) mayLandFor() time.Duration { return 2 * o.Timeout }

// bound gives each call its time. A change that was begun is finished although its caller is asked to stop: one that is cut
// off may land when the next manager has acted. Nothing lands of a read, which ends with its caller.
func (o Options) bound(ctx context.Context, c *call, next handler) error {
	began := time.Now()
	deadline, mayLand := began.Add(o.Timeout), time.Time{}
	if c.Operation == list {
		deadline = began.Add(listTimeouts * o.Timeout)
	}
	if c.changes() {
		if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
			deadline = own
		}
		ctx, mayLand = context.WithoutCancel(ctx), began.Add(o.mayLandFor())
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := o.caught(func() error { return next(ctx, c) })
	var late interface{ Timeout() bool } // of the network, of gateways and of drivers
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return &outcomeError{outcome: TimedOut, err: err, mayLand: mayLand}
	case errors.As(err, &late) && late.Timeout():
		return &outcomeError{outcome: Retryable, err: err, mayLand: mayLand}
	}
	return err
}

// caught returns a panic of the driver as an error. In a goroutine it would end the manager, and each that leads after it: the next one
// meets the same entry.
func (o Options) caught(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver panicked: %v", p)
			o.Logger.Error(err, "call failed", "registry", o.Name, "stack", string(debug.Stack()))
		}
	}()
	return call()
}
