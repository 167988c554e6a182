package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/gate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// Settings is what the reconciler takes from the configuration. They are applied whole: a reconcile works with one
// Settings from its first line to its last.
type Settings struct {
	// Cluster is the owner in every mark. It never changes while the process lives.
	Cluster string
	// Registries are all that there are, by their names in the configuration.
	Registries map[string]Registry
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

// Registry is one registry, with the optional capabilities that the reconciler uses.
type Registry struct {
	Calls registry.Registry
	// Identity is equal for two values of Calls that are clients of the same servers: what those have acknowledged to one
	// is known of the other too. Of a registry with another Identity nothing is known yet. Nil: each client is a registry of
	// its own. It must be comparable.
	Identity any
	// Getter is nil where the registry can't be asked what it says of one instance.
	Getter registry.Getter
	// Prober is nil where a registered instance is given to clients at once.
	Prober registry.Prober
	// Lists reports whether it can say what it holds, so that nothing that a pod left stays unknown.
	Lists bool
	// Timeout bounds one call.
	Timeout time.Duration
	// Gate bounds the calls that are in flight; nil where nothing does. A Registry with another Gate needs no other Calls.
	Gate *gate.Gate
}

// same reports whether the other is a client of the same servers.
func (r Registry) same(other Registry) bool {
	if r.Identity == nil || other.Identity == nil {
		return r.Calls == other.Calls
	}
	return r.Identity == other.Identity
}

// names are those of all registries, sorted.
func (s *Settings) names() []string { return slices.Sorted(maps.Keys(s.Registries)) }
