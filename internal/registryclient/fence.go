package registryclient

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errRetired = errors.New("the configuration has changed: this registry is no longer in use")

// Fence is whether this process leads. It must be safe for concurrent use.
type Fence interface {
	// Permit refuses a call that could outlast this manager's lease.
	Permit(takes time.Duration) error
	// MayLand: a change may still take effect until then.
	MayLand(until time.Time)
}

type fence struct {
	Options

	mu      sync.Mutex
	retired bool
	calls   sync.WaitGroup
}

func (f *fence) pass(ctx context.Context, c *call, next handler) error {
	if err := f.enter(ctx, c); err != nil {
		return &outcomeError{outcome: Fenced, err: err}
	}
	defer f.calls.Done()
	err := next(ctx, c)
	if until, may := MayLandUntil(err); may && f.Fence != nil {
		f.Fence.MayLand(until)
	}
	return err
}

func (f *fence) enter(ctx context.Context, c *call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.retired {
		return errRetired
	}
	takes := f.Timeout
	if c.changes() {
		if err := ctx.Err(); err != nil {
			return err
		}
		takes = f.mayLandFor()
	}
	if f.Fence != nil {
		if err := f.Fence.Permit(takes); err != nil {
			return err
		}
	}
	f.calls.Add(1)
	return nil
}

func (f *fence) retire() {
	f.mu.Lock()
	f.retired = true
	f.mu.Unlock()
	f.calls.Wait()
}
