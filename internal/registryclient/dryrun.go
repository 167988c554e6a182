package registryclient

import (
	"context"
	"errors"
)

// ErrDryRun is the error of every change in a dry run.
var ErrDryRun = errors.New("a dry run changes nothing")

// rehearse tells each change of a dry run in place of making it. Reads are made.
func (o Options) rehearse(ctx context.Context, c *call, next handler) error {
	if o.DryRun == nil || !c.changes() {
		return next(ctx, c)
	}
	o.DryRun(c.Subject)
	return &outcomeError{outcome: DryRun, err: ErrDryRun}
}
