package app

import (
	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/controller"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/resync"
)

// settings are what the controller takes from a configuration and its registries.
func settings(all *registries) controller.Settings {
	c := all.config
	s := controller.Settings{
		Cluster:           c.Cluster,
		Registries:        make(map[string]*registryclient.Client, len(all.byName)),
		RegisteredByApp:   map[string]bool{},
		Renamed:           all.renamed,
		DefaultRegistries: c.DefaultRegistries,
		Drain:             c.Drain,
		Guard:             c.Guard == config.GuardAlways,
		Rules: clusterstate.Rules{
			Ownership:              c.Hooks,
			Services:               c.Service.Rules,
			SharedAcrossNamespaces: c.Service.SharedAcrossNamespaces,
			Allowed:                c.Service.Allowed,
			Unready:                c.Unready,
			PanicThreshold:         c.PanicThreshold,
		},
		OnRegistryFailure: c.OnRegistryFailure,
	}
	for name, o := range all.byName {
		s.Registries[name] = o.client
		s.RegisteredByApp[name] = c.Registries[name].RegisteredByApp
		// Only the guard keeps what a pod left that vanishes unseen, where no list shows it.
		s.Guard = s.Guard || c.Guard == config.GuardAuto && !o.client.Lists()
	}
	return s
}

// sources are the registries to compare and to renew.
func sources(all *registries) []resync.Source {
	found := make([]resync.Source, 0, len(all.byName))
	for name, o := range all.byName {
		found = append(found, resync.Source{Name: name, Client: o.client})
	}
	return found
}
