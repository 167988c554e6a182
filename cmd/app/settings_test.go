package app

import (
	"testing"

	"github.com/rollcall-dev/rollcall/internal/calls"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/gate"
	"github.com/rollcall-dev/rollcall/registry"
)

// leasing is a registry whose entries expire.
type leasing struct {
	registry.Registry
	registry.Heartbeater
}

func TestAllWhoTalkToARegistryShareItsGate(t *testing.T) {
	t.Parallel()
	o := &opened{registry: &calls.Registry{Heartbeater: leasing{}}, gate: gate.New(8)}
	all := &registries{byName: map[string]*opened{"eureka": o}}
	if got := settings(&config.Config{}, all).Registries["eureka"].Gate; got != o.gate {
		t.Error("pods pass another gate")
	}
	if got := sources(all); len(got) != 1 || got[0].Gate != o.gate {
		t.Error("removals pass another gate")
	}
	if got := leased(all); len(got) != 1 || got[0].Gate != o.gate {
		t.Error("another gate is told of heartbeats")
	}
}
