// Package read asks each registry what a client of the registry asks it, without the drivers: to know what clients
// are given. Each function reads one service and tells whose each entry is by its mark.
package read

import (
	"context"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
)

// Given are the addresses, with ports, that a client is given: those of the entries in service. It returns with ctx also where the reader
// does not.
func Given(ctx context.Context, reader Reader) (given []string, err error) {
	entries, err := Within(ctx, reader)
	for _, e := range entries {
		if e.State == registry.InService {
			given = append(given, e.Endpoint())
		}
	}
	return given, err
}

// Within is what a call returns, or the error of ctx if that ends first: ZooKeeper's client has no contexts.
func Within[T any](ctx context.Context, call func(context.Context) (T, error)) (got T, err error) {
	type answer struct {
		got T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		var a answer
		a.got, a.err = call(ctx)
		answered <- a
	}()
	select {
	case a := <-answered:
		return a.got, a.err
	case <-ctx.Done():
		return got, fmt.Errorf("asking the registry: %w", ctx.Err())
	}
}
