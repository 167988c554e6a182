package registryclient

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// listTimeouts: a list gets everything in one call.
const listTimeouts = 6

// mayLandFor is how long after it began a change may take effect: with a timeout of 5 s, 10 s, since a gateway may delay it.
func (o Options) mayLandFor() time.Duration { return 2 * o.Timeout }

// bound sets the deadline. A change ignores cancellation: cut off, it could still land after the next manager has acted.
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

// caught recovers a driver's panic: one bad entry would crash every leader.
func (o Options) caught(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver panicked: %v", p)
			o.Logger.Error(err, "failed to call the registry", "registry", o.Name, "stack", string(debug.Stack()))
		}
	}()
	return call()
}
