package calls

import (
	"context"
	"errors"

	"github.com/rollcall-dev/rollcall/registry"
)

// ErrDryRun is what whoever would change something gets in a dry run: it was told, and nothing was done.
var ErrDryRun = errors.New("a dry run changes nothing")

// Rehearse returns reg with its changes taken out: each calls refuse in place of what is around it, which tells it and
// returns ErrDryRun, or an error that wraps it. Reads are made. Nothing is kept alive. refuse must be safe for concurrent
// use.
func Rehearse(reg *Registry, refuse func(operation string, in registry.Instance) error) *Registry {
	rehearsed := *reg
	rehearsed.Registry = rehearsal(refuse)
	rehearsed.Heartbeater = nil
	return &rehearsed
}

type rehearsal func(operation string, in registry.Instance) error

func (r rehearsal) Register(_ context.Context, in registry.Instance) error {
	return r(Register, in)
}

func (r rehearsal) FailOver(_ context.Context, in registry.Instance) error {
	return r(FailOver, in)
}

func (r rehearsal) Deregister(_ context.Context, in registry.Instance) error {
	return r(Deregister, in)
}
