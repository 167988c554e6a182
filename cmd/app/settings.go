package app

import (
	"maps"
	"slices"

	"github.com/go-logr/logr"

	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	of "github.com/rollcall-dev/rollcall/internal/settings"
)

// settings are what the controller takes from a configuration and its registries.
func settings(all *registries) observe.Settings {
	clients := make(registryclient.Registries, len(all.byName))
	for name, o := range all.byName {
		clients[name] = o.client
	}
	return of.Of(all.config, clients)
}

// warnOfShortDrains logs where pods end before the clients of their registry have noticed.
func warnOfShortDrains(s *observe.Settings, logger logr.Logger) {
	for _, name := range slices.Sorted(maps.Keys(s.ReaderLags)) {
		if lag := s.ReaderLags[name]; s.Drain.Min < lag {
			logger.Info("drain is shorter than the registry's clients take to notice, so requests to pods that ended can fail: raise it",
				"registry", name, "drain", s.Drain.Min.String(), "readerLag", lag.String())
		}
	}
}
