package registry

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
)

// Registry changes the entries of instances in an external service registry.
//
// Unless a person or proceedAfter releases the hook, OpenKruise continues with a pod only after the call for it has returned nil, or
// after Get has confirmed it. So the whole promise of the product depends on what nil means here. Every method
//
//   - returns nil only when the registry has acknowledged the change: a reader who asks the registry afterwards gets the new state;
//   - is idempotent: the same call succeeds again, at any later time and from another process without memory;
//   - is safe for concurrent use, even for the same instance;
//   - never blocks past its context: when that ends, the call returns an error for which errors.Is(err, ctx.Err()) is true;
//   - never retries by itself: the caller controls the back-off. Within the same context, a request can be sent to the registry's next
//     server only if the first one did not take it, or if it changes nothing but a lease;
//   - never waits for another instance's call, for example for one of few connections: the caller bounds how many calls are under
//     way (maxInFlight, which can change while the driver is in use, heartbeats and one list), and a call that waits loses its
//     time before it is sent. A question about a whole service can be shared by the calls of a moment;
//   - costs no more in a service with many other instances than in one with few: many pods of one service are called together;
//   - does not change its arguments, and keeps no reference to them;
//   - never removes or changes an entry that the instance does not own, with the one exception of Register.
//
// An entry's identity is place, service, address and port. The ownership tag tells two pods at one address apart. A driver stores it with
// the entry in whatever form the registry has for it (meta, tags, payload): cluster, its UID, namespace, pod, UID and the name of the
// registry. [Instance.Owns] reports whether an entry is the instance's own.
//
// An error of none of this package's classes means that the outcome is unknown: the registry may have done the work. An error is
// retryable unless it is wrapped by [Terminal]; [RetryAfter] sets when to come back. [NotApplied] means that nothing was changed, and
// [SeveralEntries] is an acknowledgement. After an error whose method Timeout() bool returns true, or when the call's context has
// ended, Rollcall assumes that the registry may still carry out the call, until twice the timeout has passed since it began. After
// any other error it assumes that nothing is carried out later. A change that finds that clients are given the instance by somebody
// else's entry returns an error marked by [ForeignEntry].
type Registry interface {
	// Register puts the instance into rotation: known, and given to clients. It is an upsert. An entry at the same
	// identity with another UID is overwritten, since the pod that has the address now is the one that answers there.
	Register(ctx context.Context, in Instance) error

	// FailOver takes the instance out of rotation: still known, and no longer given to clients. If the registry has no
	// such state, it does the same as Deregister. For an unknown instance it succeeds; the driver can choose whether the
	// instance is known afterwards, but it must not be in rotation. An entry that the instance does not own is left alone,
	// and that is a success too.
	FailOver(ctx context.Context, in Instance) error

	// Deregister makes the instance absent: unknown to the registry. If it is absent already, that is a success. An entry that
	// the instance does not own is left alone, and that is a success too: a late call for a dead pod must not take out the live
	// pod that was given its address, and a pod that leaves one registry must stay in another that is the same server.
	Deregister(ctx context.Context, in Instance) error
}

// Instance is one address and port of one pod under one service name.
type Instance struct { //nolint:recvcheck // a value, except for SetMeta, which fills one in
	// Place is where the registry has the service, if it has places: see [Traits.PlaceTemplate]. It is empty in any other registry.
	Place string `json:"place,omitempty"`
	// Service is the name that clients look up.
	Service string `json:"service"`
	// Address is the pod's IP or another that the configuration chooses, IPv4 or IPv6, without brackets.
	Address string `json:"address"`
	// Port is the TCP port, 1 to 65535.
	Port int `json:"port"`

	// Cluster is the owner: the name of the Kubernetes cluster that this Rollcall serves. Two clusters can share one registry.
	Cluster string `json:"cluster"`
	// ClusterUID tells the cluster apart from every other one, whatever its name: the UID of its namespace kube-system.
	// Empty if the entry is an older version's, or if Rollcall may not read the namespace.
	ClusterUID string `json:"clusterUID,omitempty"` //nolint:tagliatelle // as Kubernetes writes such names
	// Namespace, Pod and UID are the pod's. Only the UID tells a pod apart from the next one with its name or address.
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Registry is the name of the registry in the configuration. If two names turn out to be the same server, it shows
	// under which of them the entry was written last; see [Instance.Owns]. Empty if it is not known.
	Registry string `json:"registry,omitempty"`

	// What follows is for clients. A registry that has no place for one of them leaves it out.

	// Weight is the share of requests that the instance should get, relative to the others of its service, 1 to 10000;
	// 0 if none is set.
	Weight int `json:"weight,omitempty"`
	// Zone is where the instance runs; empty if that is not known.
	Zone string `json:"zone,omitempty"`
	// Tags are what clients select instances by, sorted and without duplicates. It is nil rather than empty.
	Tags []string `json:"tags,omitempty"`
	// Metadata holds anything else. No key is one of [ReservedMeta]. It is nil rather than empty.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Equal reports whether two instances are the same in everything but ClusterUID: an entry that lacks it is as good as one that has
// it, and gets it with the next Register.
func (in Instance) Equal(other Instance) bool {
	if !maps.Equal(in.Metadata, other.Metadata) || !slices.Equal(in.Tags, other.Tags) {
		return false
	}
	return in.Port == other.Port && in.Weight == other.Weight && in.texts() == other.texts()
}

func (in Instance) texts() [9]string {
	return [...]string{in.Place, in.Service, in.Address, in.Cluster, in.Namespace, in.Pod, in.UID, in.Registry, in.Zone}
}

// Owns reports whether the entry with this UID and this registry in its ownership tag is the instance's own: it is the same
// pod's, and has the same registry. If one of the two has no registry, like an entry of an older version of Rollcall, the UID
// decides.
func (in Instance) Owns(uid, registry string) bool {
	return in.UID != "" && in.UID == uid && (in.Registry == "" || registry == "" || in.Registry == registry)
}

// Endpoint is the address and port as net.Dial takes it: 10.0.0.1:80, [fd00::1]:80.
func (in Instance) Endpoint() string {
	return net.JoinHostPort(in.Address, strconv.Itoa(in.Port))
}

// State is the state of an instance in a registry.
type State string

const (
	// InService: given to clients.
	InService State = "InService"
	// OutOfService: known, and not given to clients.
	OutOfService State = "OutOfService"
	// Absent: unknown. No [Entry] has it.
	Absent State = "Absent"
	// Foreign: clients are given the instance by an entry that none of the driver's methods changes: it has another ID, key, node or
	// owner than the driver writes. It has no ownership tag, or the cluster's own: from before an option was changed, say. One with another
	// cluster's tag is for that cluster's Rollcall to remove. Only [Getter] and [Lister] return it, and only if the registry can have such
	// an entry.
	Foreign State = "Foreign"
)

// Entry is one instance as the registry has it.
type Entry struct {
	Instance
	State State `json:"state"`
	// ID is what the registry calls it, for a person who has to find it there. Only a [Foreign] entry with an ownership tag has it.
	ID string `json:"-"`
}
