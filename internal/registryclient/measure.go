package registryclient

import (
	"context"
	"time"
)

// Trace begins a span, which the returned function ends.
type Trace func(ctx context.Context, of Subject) (context.Context, func(error))

func (o Options) trace(ctx context.Context, c *call, next handler) error {
	if o.Trace == nil {
		return next(ctx, c)
	}
	ctx, end := o.Trace(ctx, c.Subject)
	err := next(ctx, c)
	end(err)
	return err
}

func (o Options) measure(ctx context.Context, c *call, next handler) error {
	began := time.Now()
	err := next(ctx, c)
	if o.Metrics != nil {
		o.Metrics.Called(o.Name, o.Driver, c.Operation, string(Classify(err)), time.Since(began))
	}
	return err
}
