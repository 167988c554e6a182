package driverkit

import (
	"context"
	"errors"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
)

// contextError returns an error that wraps the context's and has no class if the call's context has ended: a refusal that
// arrives late may be half an answer, so it does not count. Otherwise, and for nil, it returns err as it is.
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
	return delayed || named || registry.CodeOf(err) != "" || registry.IsOfAgent(err)
}

// CallError completes the error of a call for one instance with what the driver was doing, such as "renewing". If the call's context
// has ended, the error wraps the context's and has no class: what arrives late may be half an answer, so it does not count. Every
// method of a driver returns its error through CallError, [Batch] or [List]. CallError of nil is nil.
func CallError(ctx context.Context, doing string, in registry.Instance, err error) error {
	if err == nil {
		return nil
	}
	service := in.Service
	if in.Place != "" {
		service = in.Place + "/" + service
	}
	return fmt.Errorf("%s %s at %s: %w", doing, service, in.Endpoint(), contextError(ctx, err))
}

func changeError(ctx context.Context, c registry.Change, err error) error {
	doing := map[registry.State]string{
		registry.InService: "registering", registry.OutOfService: "taking out", registry.Absent: "deregistering",
	}[c.State]
	return CallError(ctx, doing, c.Instance, err)
}

// List makes a list of a driver. It refuses an empty cluster, to which every entry without an ownership tag would belong. Its errors
// have the cluster, and, like those of [CallError], the context's error if that has ended. With an error it returns no entries.
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
