package app

import (
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// settings are what the controller takes from a configuration and its registries.
func settings(all *registries) observe.Settings {
	c := all.config
	s := observe.Settings{
		Cluster:           c.Cluster,
		Registries:        make(registryclient.Registries, len(all.byName)),
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
	for name, o := range all.byName {
		s.Registries[name], s.Weightless[name] = o.client, !o.client.Weighs()
		if s.ReaderLags[name] = o.client.ReaderLag(); c.Registries[name].ReaderLag != nil {
			s.ReaderLags[name] = *c.Registries[name].ReaderLag
		}
		s.Services.Places[name] = o.client.PlaceTemplate()
		// Nothing else shows what a pod left that disappeared unseen, also in a place without other pods. In a registry that is the pod
		// itself, or follows it, it leaves nothing.
		s.Guard = s.Guard || s.Services.Places[name] != "" || !o.client.Lists() && !o.client.CallsPods() && !o.client.Follows()
	}
	return s
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
