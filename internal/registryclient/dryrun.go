package registryclient

import (
	"context"
	"errors"
)

// ErrDryRun is returned for every change in a dry run.
var ErrDryRun = errors.New("a dry run changes nothing")

// rehearse reports changes instead of making them.
func (o Options) rehearse(ctx context.Context, c *call, next handler) error {
	if o.DryRun == nil || !c.changes() {
		return next(ctx, c)
	}
	o.DryRun(c.Subject)
	return &outcomeError{outcome: DryRun, err: ErrDryRun}
}
