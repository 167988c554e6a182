package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Outcomes of a call to a registry.
const (
	outcomeOK            = "ok"
	outcomeRetryable     = "retryable"
	outcomeTerminal      = "terminal"
	outcomeTimeout       = "timeout"
	outcomeNotRegistered = "notRegistered"
)

// Around returns what times every call to one registry that is made through it, by its name in the configuration and its
// driver. It changes neither the call nor its error. It is a calls.Around.
func (m *RegistryMetrics) Around(
	name, driver string,
) func(ctx context.Context, operation string, do func(context.Context) error) error {
	return func(ctx context.Context, operation string, do func(context.Context) error) error {
		inFlight := m.inFlight.WithLabelValues(name, driver)
		inFlight.Inc()
		defer inFlight.Dec()
		start := time.Now()
		err := do(ctx)
		m.duration.WithLabelValues(name, driver, operation, outcomeOf(ctx, err)).Observe(time.Since(start).Seconds())
		return err
	}
}

func outcomeOf(ctx context.Context, err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return outcomeOK
	case registry.IsTerminal(err):
		return outcomeTerminal
	case registry.IsNotRegistered(err):
		return outcomeNotRegistered
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return outcomeTimeout
	default:
		return outcomeRetryable
	}
}
