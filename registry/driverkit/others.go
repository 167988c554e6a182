package driverkit

import (
	"context"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// Others answers whether clients are given an instance by an entry that the driver does not change. That is a question about the whole
// service, so it is sent once for all calls of a moment, as [Shared] does. The zero value is ready to use, and is safe for concurrent use.
type Others struct {
	asking Shared[map[string][]registry.Entry] // by the endpoint
}

// Give reports whether one of the entries gives clients the instance. read returns those of others in the instance's service, as a list of
// the instance's cluster has them.
func (o *Others) Give(ctx context.Context, in registry.Instance, read func(context.Context) ([]registry.Entry, error)) (bool, error) {
	given, err := o.asking.Ask(ctx, in.Cluster+" "+in.Service, func(ctx context.Context) (map[string][]registry.Entry, error) {
		entries, err := read(ctx)
		given := map[string][]registry.Entry{}
		for _, e := range entries {
			given[e.Endpoint()] = append(given[e.Endpoint()], e)
		}
		return given, err
	})
	at := Foreign(in.Service, in.Address, in.Port).Endpoint()
	return slices.ContainsFunc(given[at], func(e registry.Entry) bool { return GivesInstance(e, in) }), err
}
