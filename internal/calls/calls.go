package calls

import (
	"context"
	"errors"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Operations, as an [Around] and the metrics name them.
const (
	Register   = "register"
	FailOver   = "failOver"
	Deregister = "deregister"
	List       = "list"
	Probe      = "probe"
	Heartbeat  = "heartbeat"
	Get        = "get"
)

// Changes reports whether the operation changes something in the registry, as all but reading does. A heartbeat counts: it
// keeps an entry that may have to go.
func Changes(operation string) bool {
	switch operation {
	case List, Get, Probe:
		return false
	default:
		return true
	}
}

// Around is put around a call: it does something, makes the call by do or doesn't, and returns its error or one of its
// own. It is safe for concurrent use.
type Around = func(ctx context.Context, operation string, do func(context.Context) error) error

// TimedOut reports whether a call failed since its time was up, so that it may still be carried out. ctx is the call's.
func TimedOut(ctx context.Context, err error) bool {
	var timeout interface{ Timeout() bool }
	return err != nil && (ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout()) // context.DeadlineExceeded is one
}

// Registry is a driver's registry with something around every call. A capability that the driver lacks is nil.
type Registry struct {
	registry.Registry

	Lister registry.Lister
	// Staleness is how old what Lister answers may be; see [registry.StaleLister].
	Staleness   time.Duration
	Getter      registry.Getter
	Prober      registry.Prober
	Heartbeater registry.Heartbeater
}

// Wrap puts each of arounds around every call to made, the first one outermost. Where made is a [registry.Batcher] of more
// than one change, calls that are made while others are under way are joined, inside all of arounds.
func Wrap(made registry.Registry, arounds ...Around) *Registry {
	around := chain(arounds)
	inner := made
	if batcher, ok := made.(registry.Batcher); ok && batcher.BatchLimit() > 1 {
		inner = newJoiner(made, batcher)
	}
	wrapped := &Registry{Registry: &changes{inner: inner, around: around}}
	if lister, ok := made.(registry.Lister); ok {
		wrapped.Lister = &lists{inner: lister, around: around}
	}
	if stale, ok := made.(registry.StaleLister); ok {
		wrapped.Staleness = stale.Staleness()
	}
	if getter, ok := made.(registry.Getter); ok {
		wrapped.Getter = &gets{inner: getter, around: around}
	}
	if prober, ok := made.(registry.Prober); ok {
		wrapped.Prober = &probes{inner: prober, around: around}
	}
	if heartbeater, ok := made.(registry.Heartbeater); ok && heartbeater.HeartbeatInterval() > 0 {
		wrapped.Heartbeater = &heartbeats{Heartbeater: heartbeater, around: around}
	}
	return wrapped
}

func chain(arounds []Around) Around {
	if len(arounds) == 0 {
		return func(ctx context.Context, _ string, do func(context.Context) error) error { return do(ctx) }
	}
	outer, inner := arounds[0], chain(arounds[1:])
	return func(ctx context.Context, operation string, do func(context.Context) error) error {
		return outer(ctx, operation, func(ctx context.Context) error { return inner(ctx, operation, do) })
	}
}

type changes struct {
	inner  registry.Registry
	around Around
}

func (c *changes) Register(ctx context.Context, in registry.Instance) error {
	return c.around(ctx, Register, func(ctx context.Context) error { return c.inner.Register(ctx, in) })
}

func (c *changes) FailOver(ctx context.Context, in registry.Instance) error {
	return c.around(ctx, FailOver, func(ctx context.Context) error { return c.inner.FailOver(ctx, in) })
}

func (c *changes) Deregister(ctx context.Context, in registry.Instance) error {
	return c.around(ctx, Deregister, func(ctx context.Context) error { return c.inner.Deregister(ctx, in) })
}

type lists struct {
	inner  registry.Lister
	around Around
}

func (l *lists) List(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	err = l.around(ctx, List, func(ctx context.Context) error {
		entries, err = l.inner.List(ctx, cluster)
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

type gets struct {
	inner  registry.Getter
	around Around
}

func (g *gets) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = g.around(ctx, Get, func(ctx context.Context) error {
		state, err = g.inner.Get(ctx, in)
		return err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}

type probes struct {
	inner  registry.Prober
	around Around
}

func (p *probes) Probe(ctx context.Context, in registry.Instance) error {
	return p.around(ctx, Probe, func(ctx context.Context) error { return p.inner.Probe(ctx, in) })
}

type heartbeats struct {
	registry.Heartbeater
	around Around
}

func (h *heartbeats) Heartbeat(ctx context.Context, in registry.Instance) error {
	return h.around(ctx, Heartbeat, func(ctx context.Context) error { return h.Heartbeater.Heartbeat(ctx, in) })
}
