// Package wait has commands wait for what they have begun.
package wait

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Pause lets time pass, or less where ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Until looks again and again until nothing is missing. Where that takes longer than the limit, or ctx ends, its error says
// what is.
func Until(ctx context.Context, limit, every time.Duration, missing func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %s in vain", limit))
	defer cancel()
	var last error
	for {
		err := missing(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), cmp.Or(last, err)) // err may say no more than that ctx has ended
		}
		last = err
		Pause(ctx, every)
	}
}
