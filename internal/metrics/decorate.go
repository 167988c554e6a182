package metrics

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Outcomes of a call to a registry.
const (
	outcomeOK        = "ok"
	outcomeRetryable = "retryable"
	outcomeTerminal  = "terminal"
	outcomeTimeout   = "timeout"
)

// Decorate returns a Registry that times every call of reg and passes it on unchanged. It is a registry.Lister exactly
// where reg is one. It is no other optional capability; ask reg itself.
func Decorate(reg registry.Registry, driver string, m *RegistryMetrics) registry.Registry {
	timed := &timedRegistry{Registry: reg, driver: driver, metrics: m}
	if lister, ok := reg.(registry.Lister); ok {
		return &timedLister{timedRegistry: timed, lister: lister}
	}
	return timed
}

type timedRegistry struct {
	registry.Registry
	driver  string
	metrics *RegistryMetrics
}

func (t *timedRegistry) Register(ctx context.Context, in registry.Instance) error {
	return t.call(ctx, "register", func() error { return t.Registry.Register(ctx, in) })
}

func (t *timedRegistry) FailOver(ctx context.Context, in registry.Instance) error {
	return t.call(ctx, "failOver", func() error { return t.Registry.FailOver(ctx, in) })
}

func (t *timedRegistry) Deregister(ctx context.Context, in registry.Instance) error {
	return t.call(ctx, "deregister", func() error { return t.Registry.Deregister(ctx, in) })
}

func (t *timedRegistry) call(ctx context.Context, operation string, do func() error) error {
	inFlight := t.metrics.inFlight.WithLabelValues(t.driver)
	inFlight.Inc()
	defer inFlight.Dec()
	start := time.Now()
	err := do()
	t.metrics.duration.WithLabelValues(t.driver, operation, outcomeOf(ctx, err)).Observe(time.Since(start).Seconds())
	return err
}

type timedLister struct {
	*timedRegistry
	lister registry.Lister
}

func (t *timedLister) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	var entries []registry.Entry
	err := t.call(ctx, "list", func() (err error) {
		entries, err = t.lister.List(ctx, cluster)
		return err
	})
	return entries, err
}

func outcomeOf(ctx context.Context, err error) string {
	var network net.Error
	switch {
	case err == nil:
		return outcomeOK
	case registry.IsTerminal(err):
		return outcomeTerminal
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return outcomeTimeout
	default:
		return outcomeRetryable
	}
}
