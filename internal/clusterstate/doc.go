// Package clusterstate holds what only all pods, workloads and namespaces together can say: which namespace may register
// pods under a service name ([Claims]), of which services too many pods are not ready at once ([Panics]), which workloads
// there are ([Workloads]), where a pod runs ([NodeOf]), whether an address has passed on to another pod ([AnotherHas]), and what of
// all that is worth caching ([StripPod] and its like). It reads the cluster and changes nothing.
package clusterstate

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// Rules are the part of the configuration that applies to all pods together.
type Rules struct {
	// Ownership says which handlers are Rollcall's.
	Ownership lifecycle.Ownership
	// Services says which instances a pod has.
	Services service.Rules
	// SharedAcrossNamespaces allows one service name in several namespaces.
	SharedAcrossNamespaces bool
	// Allowed says which namespaces may use which names; nil allows all names to all namespaces.
	Allowed service.Policy
	// FormerNames holds, by the former names of registries, those that the same servers have now. It has the names of the
	// applications' entries in them too.
	FormerNames map[string]string
	// Unready is the policy for a pod in Normal that is not ready.
	Unready lifecycle.UnreadyPolicy
	// PanicThreshold is the share of a service's pods, in percent: when more of them are not ready at once, Rollcall keeps
	// them whatever Unready says.
	PanicThreshold int
}

// configured knows those registries.
func (r *Rules) configured(registries []string) configured {
	return func(in lifecycle.Recorded) (lifecycle.Recorded, bool) {
		if now, renamed := r.FormerNames[in.Registry]; renamed {
			in.Registry = now
		}
		return in, slices.Contains(registries, in.Registry)
	}
}

// State is all of it. Each part has a lock of its own and is safe for concurrent use.
type State struct {
	Claims    *Claims
	Panics    *Panics
	Workloads *Workloads
}

// New returns a State that reads workloads and namespaces from the cache.
func New(cache client.Reader) *State {
	claims := newClaims()
	return &State{Claims: claims, Panics: newPanics(), Workloads: &Workloads{cache: cache, claims: claims}}
}
