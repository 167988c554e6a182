package controller

import (
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// Settings is what the reconciler takes from the configuration. They are applied whole: a reconcile works with one
// Settings from its first line to its last.
type Settings struct {
	// Cluster is the owner in every mark. It never changes while the process lives.
	Cluster string
	// Registry is compared by identity: another value means another registry, of which nothing is known yet.
	Registry registry.Registry
	// Timeout bounds one registry call.
	Timeout time.Duration
	// Ownership says which handlers are ours.
	Ownership lifecycle.Ownership
	// Services says which instances a pod has.
	Services service.Rules
	// SharedAcrossNamespaces allows one service name in several namespaces.
	SharedAcrossNamespaces bool
	// Drain is how long a pod stays up after it was taken out of rotation; the pod's annotation wins.
	Drain time.Duration
}
