package fakeregistry

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
)

// Memory makes an empty registry in memory.
func Memory(ctx context.Context) *memory.Registry {
	made, err := memory.New(ctx, registry.Config{})
	m, ok := made.(*memory.Registry)
	if err != nil || !ok {
		panic(err) // where nothing is configured, nothing can be refused
	}
	return m
}
