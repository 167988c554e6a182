package registryclient

import "context"

// measure gives the metrics each call, with how long it took and what came of it.
func (o Options) measure(ctx context.Context, c *call, next handler) error {
	if o.Metrics == nil {
		return next(ctx, c)
	}
	outcome, ended := Retryable, o.Metrics.Began(o.Name, o.Driver, c.operation)
	defer func() { ended(string(outcome)) }()
	err := next(ctx, c)
	outcome = Classify(err)
	return err
}
