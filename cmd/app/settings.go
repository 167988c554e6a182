package app

import (
	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/controller"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// settings are what the controller takes from a configuration.
func settings(c *config.Config, all *registries) controller.Settings {
	s := controller.Settings{
		Cluster:           c.Cluster,
		Registries:        make(map[string]*registryclient.Client, len(all.byName)),
		Renamed:           all.renamed,
		DefaultRegistries: c.DefaultRegistries,
		Drain:             c.Drain,
		Guard:             c.Guard == config.GuardAlways,
		Rules: clusterstate.Rules{
			Ownership:              lifecycle.Ownership{Owned: c.Hooks.Owned, NewlyCreated: c.Hooks.NewlyCreated},
			Services:               service.Rules{Name: c.Service.Name, Port: c.Service.Port, Metadata: c.Service.Metadata},
			SharedAcrossNamespaces: c.Service.SharedAcrossNamespaces,
			Allowed:                c.Service.Allowed,
			Unready:                lifecycle.UnreadyPolicy(c.Unready),
			PanicThreshold:         c.PanicThreshold,
		},
		OnRegistryFailure: lifecycle.FailurePolicy{
			PreDelete:     c.OnRegistryFailure.PreDelete == config.Proceed,
			InPlaceUpdate: c.OnRegistryFailure.InPlaceUpdate == config.Proceed,
			After:         c.OnRegistryFailure.After,
		},
	}
	for name, o := range all.byName {
		s.Registries[name] = o.client
		// Only the guard keeps what a pod left that vanishes unseen, where no list shows it.
		s.Guard = s.Guard || c.Guard == config.GuardAuto && !o.client.Lists()
	}
	return s
}
