package registryclient

import (
	"context"
	"time"

	"github.com/rollcall-dev/rollcall/internal/history"
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
	took := time.Since(began)
	if o.Metrics != nil {
		o.Metrics.Called(o.Name, o.Driver, c.Operation, string(Classify(err)), took)
	}
	if o.History.Calls() {
		o.History.Called(o.called(c, err, took))
	}
	return err
}

func (o Options) called(c *call, err error, took time.Duration) history.Call {
	in := c.Instance
	line := history.Call{
		Pod:       history.Pod{Namespace: in.Namespace, Name: in.Pod, UID: in.UID},
		Entry:     history.Entry{Registry: o.Name, Service: in.Service},
		Operation: c.Operation, Outcome: string(Classify(err)), Err: err, Took: took,
	}
	if in.Address != "" {
		line.Endpoint = in.Endpoint()
	}
	if c.ByApp {
		line.Writer = history.App
	}
	return line
}
