package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// Settings is what the reconciler takes from the configuration. They are applied whole: a reconcile works with one
// Settings from its first line to its last.
type Settings struct {
	// Rules apply to all pods together.
	clusterstate.Rules

	// Cluster is the owner in every mark. It never changes while the process lives.
	Cluster string
	// Registries are all that there are, by their names in the configuration.
	Registries map[string]*registryclient.Client
	// Renamed holds, by the names of registries that there are no more, the names that the same servers have now.
	Renamed map[string]string
	// DefaultRegistries are those of a pod that names none.
	DefaultRegistries []string
	// Drain is how long a pod stays up after it was taken out of rotation; the pod's annotation wins.
	Drain time.Duration
	// OnRegistryFailure says which hooks go on without a registry that does not answer.
	OnRegistryFailure lifecycle.FailurePolicy
	// Guard says whether pods get a finalizer that keeps them until they were taken out.
	Guard bool
}

// names are those of all registries, sorted.
func (s *Settings) names() []string { return slices.Sorted(maps.Keys(s.Registries)) }

// server implements tracker.Servers.
func (s *Settings) server(registry string) (identity any, known bool) {
	client, known := s.Registries[registry]
	if !known {
		return nil, false
	}
	return client.Server(), true
}

// asks reports whether a registry can be asked what it says of one instance.
func (s *Settings) asks(registry string) bool {
	client := s.Registries[registry]
	return client != nil && client.Gets()
}
