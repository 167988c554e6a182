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
	type answer struct {
		given []string
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		var a answer
		entries, err := reader(ctx)
		a.err = err
		for _, e := range entries {
			if e.State == registry.InService {
				a.given = append(a.given, e.Endpoint())
			}
		}
		answered <- a
	}()
	select {
	case a := <-answered:
		return a.given, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("reading the registry: %w", ctx.Err())
	}
}
