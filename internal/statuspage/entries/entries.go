// Package entries is what the manager answers to the kubectl plugin: what each registry is known to say of the pods, and why they wait.
package entries

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/orders"
)

// Path is where the manager serves an [Answer], and ParameterNamespace has it answer about one namespace.
const (
	Path               = "/status/entries.json"
	ParameterNamespace = "namespace"

	// PagePath is where the manager that leads serves all that its page shows.
	PagePath = "/status.json"
)

// Answer is of the manager that leads: any other knows nothing.
type Answer struct {
	Leads bool `json:"leads"`
	// Withheld is why nothing is shown of pods, if it is: the reader has no right to list them.
	Withheld string `json:"withheld,omitempty"`
	// Pods has the entries of each pod that a registry may have.
	Pods map[types.UID][]Entry `json:"pods"`
	// Waits has each pod that waits, or that a person should check. It is nil from a manager that is older.
	Waits map[types.UID]Wait `json:"waits"`
	// Circumstances has those under which the manager decided about each pod, without pods that have none. It is nil from a manager that is
	// older.
	Circumstances map[types.UID]lifecycle.Circumstances `json:"circumstances"`
}

// Page is what the plugin reads of all that the page shows.
type Page struct {
	Registries []Registry `json:"registries"`
}

// Registry is one of the configuration, as the page shows it.
type Registry struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// Breaker is the state of the circuit breaker: closed, halfOpen or open.
	Breaker string `json:"breaker"`
	// Slots is how many calls for pods may be under way now, InUse how many are, and Queued how many wait.
	Slots  int `json:"slots"`
	InUse  int `json:"inUse"`
	Queued int `json:"queued"`
	// Lists: the driver can list, without which the registry is never compared with the cluster.
	Lists bool `json:"lists"`
	// Succeeded is when the last comparison succeeded, and Failure why the last one failed, if it did.
	Succeeded       time.Time `json:"resynced,omitzero"`
	Failure         string    `json:"resyncFailure,omitempty"`
	RemovalsBlocked bool      `json:"removalsBlocked,omitempty"`
	// Held are the removals that wait for approval.
	Held *orders.Held `json:"heldRemovals,omitempty"`
}

// RegistryCheck is a line of what the manager prints with --check-registries, about one registry.
type RegistryCheck struct {
	Registry string `json:"registry"`
	Driver   string `json:"driver"`
	// Written: the registry has acknowledged an entry and its removal. Note is why none was written, if it is not meant to be.
	Written bool   `json:"written"`
	Note    string `json:"note,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Wait is why a pod waits, as the page shows it.
type Wait struct {
	// Hook is the one OpenKruise waits for; empty if it waits for none.
	Hook    string `json:"hook,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Warning: a person should look.
	Warning bool `json:"warning"`
}

// Entry is one of a pod.
type Entry struct {
	Registry string `json:"registry"`
	// Writer is who has written it: empty for Rollcall, "app" for the pod's application.
	Writer   string `json:"writer,omitempty"`
	Service  string `json:"service"`
	Endpoint string `json:"endpoint"`
	State    State  `json:"state"`
}

// State is what a registry is known to say of an entry.
type State string

// The states of an entry.
const (
	In             State = "in"
	Out            State = "out"
	Unacknowledged State = "unacknowledged"
)
