// Package settings is what the controller takes from a configuration and its registries: for the manager, and for a preview of what it
// would do.
package settings

import (
	"time"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// Of returns the settings of a configuration with the clients of its registries.
func Of(c *config.Config, clients registryclient.Registries) observe.Settings {
	s := observe.Settings{
		Cluster:           c.Cluster,
		Registries:        clients,
		RegisteredByApp:   c.RegisteredByApp(),
		Weightless:        map[string]bool{},
		ReaderLags:        map[string]time.Duration{},
		DefaultRegistries: c.DefaultRegistries,
		DefaultsFor:       c.DefaultsFor,
		UnreadyAfter:      c.UnreadyAfter,
		Drain:             c.Drain,
		Rules: clusterstate.Rules{
			Ownership:      c.Hooks,
			Services:       c.Service,
			PanicThreshold: c.PanicThreshold,
		},
		ProceedAfter: c.ProceedAfter,
	}
	s.Services.Places = map[string]string{}
	for name, client := range clients {
		s.Weightless[name] = !client.Weighs()
		if s.ReaderLags[name] = client.ReaderLag(); c.Registries[name].ReaderLag != nil {
			s.ReaderLags[name] = *c.Registries[name].ReaderLag
		}
		s.Services.Places[name] = client.PlaceTemplate()
		// Nothing else shows what a pod left that disappeared unseen, also in a place without other pods. In a registry that is the pod
		// itself, or follows it, it leaves nothing.
		s.Guard = s.Guard || s.Services.Places[name] != "" || !client.Lists() && !client.CallsPods() && !client.Follows()
	}
	return s
}
