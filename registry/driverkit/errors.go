package driverkit

import (
	"context"
	"errors"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
)

// contextError gives the error of a call its class where the call's context has ended: the error then says so, to
// errors.Is too, and has no class of its own. A refusal that arrives late may be half of an answer, so it is no verdict.
// While the context lasts, err is returned as it is, and nil always.
func contextError(ctx context.Context, err error) error {
	ended := ctx.Err()
	if err == nil || ended == nil || errors.Is(err, ended) && !hasClass(err) {
		return err
	}
	return fmt.Errorf("%w: %s", ended, err.Error())
}

// hasClass reports whether one of package registry's functions has marked the error.
func hasClass(err error) bool {
	_, delayed := registry.RetryAfterOf(err)
	_, named := registry.FieldOf(err)
	return delayed || named || registry.IsTerminal(err) || registry.IsNotRegistered(err) || registry.IsNotApplied(err) ||
		registry.IsForeignEntry(err) || registry.IsSeveralEntries(err) || registry.IsOfAgent(err)
}

// CallError finishes the error of a call for one instance: it says what the driver was doing, such as "renewing". Where the
// call's context has ended, the error says so, to [errors.Is] too, and has no other class: what arrives late may be half of an
// answer, and is no verdict. Every method of a driver returns its error through CallError, [Batch] or [List]. nil stays nil.
func CallError(ctx context.Context, doing string, in registry.Instance, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s at %s: %w", doing, in.Service, in.Endpoint(), contextError(ctx, err))
}

func changeError(ctx context.Context, c registry.Change, err error) error {
	doing := map[registry.State]string{
		registry.InService: "registering", registry.OutOfService: "failing over", registry.Absent: "deregistering",
	}[c.State]
	return CallError(ctx, doing, c.Instance, err)
}

// List makes a list of a driver. It refuses a cluster without a name, of which every entry without a mark would be, says in
// an error which cluster was listed and, as [CallError] does, that the context has ended, and returns no entries with one.
func List(
	ctx context.Context, cluster string, list func(ctx context.Context, cluster string) ([]registry.Entry, error),
) ([]registry.Entry, error) {
	if cluster == "" {
		return nil, registry.Terminal(errors.New("listing a cluster: it has no name"))
	}
	entries, err := list(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, contextError(ctx, err))
	}
	return entries, nil
}
