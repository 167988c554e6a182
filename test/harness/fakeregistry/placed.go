package fakeregistry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// Placed has places in a backend that has none: there, the name of a service begins with its place. It implements [registry.PlaceLister].
type Placed struct {
	Backend

	// Template is the PlaceTemplate of its [registry.Traits].
	Template string
}

var _ registry.PlaceLister = Placed{}

// Traits implements [registry.Describer].
func (p Placed) Traits() registry.Traits {
	traits := registry.TraitsOf(p.Backend)
	traits.PlaceTemplate = p.Template
	return traits
}

// Register implements [registry.Registry].
func (p Placed) Register(ctx context.Context, in registry.Instance) error {
	if in.Place == "" {
		return registry.Terminal(fmt.Errorf("%s has no place", in.Service))
	}
	return p.Backend.Register(ctx, joined(in))
}

// FailOver implements [registry.Registry].
func (p Placed) FailOver(ctx context.Context, in registry.Instance) error {
	return p.Backend.FailOver(ctx, joined(in))
}

// Deregister implements [registry.Registry].
func (p Placed) Deregister(ctx context.Context, in registry.Instance) error {
	return p.Backend.Deregister(ctx, joined(in))
}

// Get implements [registry.Getter].
func (p Placed) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	return p.Backend.Get(ctx, joined(in))
}

// BatchLimit implements [registry.Batcher].
func (p Placed) BatchLimit() int {
	if batcher, is := p.Backend.(registry.Batcher); is {
		return batcher.BatchLimit()
	}
	return 1
}

// Batch implements [registry.Batcher].
func (p Placed) Batch(ctx context.Context, changes []registry.Change) []error {
	there := slices.Clone(changes)
	for i := range there {
		there[i].Instance = joined(there[i].Instance)
	}
	return p.Backend.(registry.Batcher).Batch(ctx, there) //nolint:forcetypeassert // or the limit is 1
}

// ListPlace implements [registry.PlaceLister].
func (p Placed) ListPlace(ctx context.Context, cluster, place string) (there []registry.Entry, err error) {
	all, err := p.List(ctx, cluster)
	for _, e := range all {
		if name, is := strings.CutPrefix(e.Service, place+"/"); is {
			e.Place, e.Service = place, name
			there = append(there, e)
		}
	}
	return there, err
}

func joined(in registry.Instance) registry.Instance {
	in.Place, in.Service = "", in.Place+"/"+in.Service
	return in
}
