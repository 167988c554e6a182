package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// Settings is what the reconciler takes from the configuration. They are applied whole: a reconcile works with one
// Settings from its first line to its last.
type Settings struct {
	// Cluster is the owner in every mark. It never changes while the process lives.
	Cluster string
	// Registries are all that there are, by their names in the configuration. Nothing is known yet of one with another Server.
	Registries map[string]*registryclient.Client
	// Renamed holds, by the names of registries that there are no more, the names that the same servers have now.
	Renamed map[string]string
	// DefaultRegistries are those of a pod that names none.
	DefaultRegistries []string
	// Ownership says which handlers are ours.
	Ownership lifecycle.Ownership
	// Services says which instances a pod has.
	Services service.Rules
	// SharedAcrossNamespaces allows one service name in several namespaces.
	SharedAcrossNamespaces bool
	// Allowed says which namespaces may use which names; nil allows all to all.
	Allowed service.Policy
	// Drain is how long a pod stays up after it was taken out of rotation; the pod's annotation wins.
	Drain time.Duration
	// Unready is the policy for a pod in Normal that is not ready.
	Unready lifecycle.UnreadyPolicy
	// PanicThreshold is the share of a service's pods, in percent: when more of them are not ready at once, they are kept
	// whatever Unready says.
	PanicThreshold int
	// OnRegistryFailure says which hooks go on without a registry that can't be told.
	OnRegistryFailure lifecycle.FailurePolicy
	// Guard says which pods get a finalizer that keeps them until they were taken out.
	Guard lifecycle.GuardPolicy
}

// names are those of all registries, sorted.
func (s *Settings) names() []string { return slices.Sorted(maps.Keys(s.Registries)) }
