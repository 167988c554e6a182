package registry

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
)

// Registry tells an external service registry where an instance stands.
//
// Unless a person or proceedAfter releases the hook, OpenKruise goes on with a pod only after the call for it returned nil, or
// after Get has confirmed it. So the whole promise of the product rests on what nil means here. Every method
//
//   - returns nil only when the registry has acknowledged: a reader who asks the registry afterwards gets the new state;
//   - is idempotent: the same call again, at any later time and from another process with no memory, is a success;
//   - is safe for concurrent use, also for the same instance;
//   - never blocks past its context: when it ends, the call returns an error for which errors.Is(err, ctx.Err()) holds;
//   - never retries by itself: the caller owns the back-off. A request may go on to the registry's next server, within the same
//     context, only if the first one did not take it, or if it changes no more than a lease;
//   - never waits for another instance's call, as for one of few connections: the caller bounds how many are under way
//     (maxInFlight, which can change while the driver is in use, heartbeats and one list), and one that waits is losing
//     its time unsent;
//   - leaves what it was given unchanged, and keeps no reference to it;
//   - never removes or changes an entry that the instance does not own, with the one exception of Register.
//
// An entry's identity is service, address and port. What tells two pods at one address apart is the mark, which a driver
// keeps with the entry in whatever form the registry has for it (meta, tags, payload): cluster, its UID, namespace, pod, UID
// and the name of the registry. [Instance.Owns] says which entries are an instance's own.
//
// An error without a mark means that the outcome is unknown: the registry may have done the work. It is retryable unless it is
// wrapped by [Terminal]; [RetryAfter] says when to come back. [NotApplied] says that nothing was changed, and [SeveralEntries] is
// an acknowledgement. After an error with a method Timeout() bool that returns true, or when the call's context has ended, Rollcall
// takes it that the registry may still carry the call out, until twice the timeout has passed since it began; after any other
// error it takes it that nothing is carried out later. A change that sees clients being given the instance by somebody
// else's entry returns an error marked by [ForeignEntry].
type Registry interface {
	// Register puts the instance in service: known, and given to clients. It is an upsert. An entry at the same
	// identity with another UID is overwritten, since the pod that has the address now is the one that answers there.
	Register(ctx context.Context, in Instance) error

	// FailOver puts the instance out of service: still known, and no longer given to clients. A registry that has no
	// such state does what Deregister does. For an instance that is not known it is a success, and whether the
	// instance is known afterwards is the driver's choice; it is never in service. An entry that it does not own is
	// spared, and that is a success too.
	FailOver(ctx context.Context, in Instance) error

	// Deregister makes the instance absent: unknown to the registry. Absent already is a success. An entry that it does
	// not own is spared, and that is a success too: a late call for a dead pod must not take out the live pod that was
	// given its address, and a pod that leaves one registry must stay in another one which is the same server.
	Deregister(ctx context.Context, in Instance) error
}

// Instance is one address and port of one pod under one service name.
type Instance struct { //nolint:recvcheck // a value, but for SetMeta, which fills one in
	// Service is the name that clients look up, after its place if the registry is a [Placer].
	Service string `json:"service"`
	// Address is the pod's IP or another that the configuration chooses, IPv4 or IPv6, without brackets.
	Address string `json:"address"`
	// Port is the TCP port, 1 to 65535.
	Port int `json:"port"`

	// Cluster names the owner: the Kubernetes cluster that this Rollcall serves. Two clusters may share one registry.
	Cluster string `json:"cluster"`
	// ClusterUID tells the cluster from every other one, whatever its configuration calls it: the UID of its namespace kube-system.
	// Empty if the entry is an older version's, or if Rollcall may not read it.
	ClusterUID string `json:"clusterUID,omitempty"` //nolint:tagliatelle // as Kubernetes writes such names
	// Namespace, Pod and UID are those of the pod. The UID alone tells a pod from the next one at its name or address.
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Registry is the name that the configuration has for the registry. Two names may turn out to mean one server, and
	// then it tells under which of them the entry was written last; see [Instance.Owns]. Empty where nothing was said.
	Registry string `json:"registry,omitempty"`

	// What follows is for clients. A registry that has no place for one of them leaves it out.

	// Weight is the share of requests that the instance should get, relative to the others of its service, 1 to 10000;
	// 0 where nothing was said.
	Weight int `json:"weight,omitempty"`
	// Zone is where the instance is; empty where nothing is known.
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

func (in Instance) texts() [8]string {
	return [...]string{in.Service, in.Address, in.Cluster, in.Namespace, in.Pod, in.UID, in.Registry, in.Zone}
}

// Owns reports whether the entry with this UID and this registry in its mark is the instance's own: it is the same pod's,
// and does not name another registry than the instance does. Where one of the two names none, as an entry of an older
// version of Rollcall, the UID decides.
func (in Instance) Owns(uid, registry string) bool {
	return in.UID != "" && in.UID == uid && (in.Registry == "" || registry == "" || in.Registry == registry)
}

// Endpoint is the address and port as net.Dial takes it: 10.0.0.1:80, [fd00::1]:80.
func (in Instance) Endpoint() string {
	return net.JoinHostPort(in.Address, strconv.Itoa(in.Port))
}

// State is what a registry says of an instance.
type State string

const (
	// InService: given to clients.
	InService State = "InService"
	// OutOfService: known, and not given to clients.
	OutOfService State = "OutOfService"
	// Absent: unknown. No [Entry] has it.
	Absent State = "Absent"
	// Foreign: clients are given the instance by an entry that Rollcall has not written. Only [Getter] and [Lister] say so,
	// and only where the registry can have such an entry: one with another ID, node or owner, and no mark of any Rollcall.
	Foreign State = "Foreign"
)

// Entry is one instance as the registry has it.
type Entry struct {
	Instance
	State State `json:"state"`
}
