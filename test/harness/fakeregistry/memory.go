package fakeregistry

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
)

// Memory makes an empty registry in memory.
func Memory() *memory.Registry {
	made, err := memory.New(context.Background(), registry.Config{})
	m, ok := made.(*memory.Registry)
	if err != nil || !ok {
		panic(err) // where nothing is configured, nothing can be refused
	}
	return m
}
