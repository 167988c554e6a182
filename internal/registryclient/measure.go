package registryclient

import (
	"context"
	"time"
)

// measure gives the metrics each call, with how long it took and what came of it.
func (o Options) measure(ctx context.Context, c *call, next handler) error {
	began := time.Now()
	err := next(ctx, c)
	if o.Metrics != nil {
		o.Metrics.Called(o.Name, o.Driver, c.operation, string(Classify(err)), time.Since(began))
	}
	return err
}
