package registry

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Rollcall finds the optional capabilities of a [Registry] by type assertion when it has made the driver, never later. The rules of
// [Registry] for contexts, concurrency, retries and error classes apply to their methods too. Methods without a context return
// immediately, and can be called at any time. What is a fact, and no method, is one of the [Traits]. io.Closer is another capability:
// see [Constructor].

// Lister is for a registry that can list its entries.
type Lister interface {
	// List returns every entry with the cluster in its ownership tag, in no particular order. It is all or nothing: a partial
	// answer is an error.
	//
	// It can also return entries that are in rotation and that none of the driver's methods changes, with the state Foreign and nothing but
	// service, address, port, [MetaIPv6] and, if the entry has the cluster's ownership tag, that tag and its ID. The address is written as
	// Kubernetes writes it. If one of them is at one of a pod's endpoints, clients are given the pod by it.
	List(ctx context.Context, cluster string) ([]Entry, error)
}

// PlaceLister is for a registry with a [Traits.PlaceTemplate], and lists by place instead of a [Lister].
type PlaceLister interface {
	// ListPlace is [Lister.List] of one place, and is called instead of it: for each place in which the cluster has pods or may have left
	// entries, several at a time. Each entry has this place as its [Instance.Place]. An error means that what the place has is not known,
	// also if the registry refuses the place or lacks it: others are compared with the cluster all the same. Only a place whose name no
	// place can have is empty without an error.
	ListPlace(ctx context.Context, cluster, place string) ([]Entry, error)
}

// MemberLister is for a registry of several servers that tells their addresses.
type MemberLister interface {
	// UnlistedMembers returns the registry's servers, in order, if they were more than the addresses of the endpoint when the registry was
	// last listed, and the driver can't reach all where the registry lists them: an address then stands for several, such as that of a load
	// balancer. The caller warns.
	UnlistedMembers() []string
}

// Getter is for a registry that can be asked for the state of one instance.
type Getter interface {
	// Get returns the state of the instance: Foreign if an entry that none of the driver's methods changes is in rotation at its service,
	// address and port and the driver can see that; otherwise InService or OutOfService; or Absent if there is no entry of its
	// identity, or only one with another cluster or one that the instance does not own. It reads where writes are acknowledged: a
	// change that was acknowledged before the call began is never missing from the answer. A driver that can only read a lagging
	// cache or a replica must not be a Getter. With an error, the state means nothing.
	//
	// Get changes nothing. Rollcall calls it after a call whose outcome is unknown, once that call can no longer be carried
	// out, and before it lets OpenKruise continue; never if all calls were acknowledged. For an [AppRegistry] it is also
	// called every 5 s for each entry that must be out of rotation, once in each interval of resync for each that must be in
	// rotation, and once the pod is gone.
	Get(ctx context.Context, in Instance) (State, error)
}

// Prober is for a registry that gives clients a registered instance only later, for example because it checks the instance
// first.
type Prober interface {
	// Probe returns nil once clients are given the instance. Otherwise the error shows what is missing, with the same classes
	// as for a call. It is called after Register was acknowledged, before OpenKruise continues or the pod leaves another
	// registry for this one, and changes nothing.
	Probe(ctx context.Context, in Instance) error
}

// OptionalProber is a [Prober] whose server may not support the question, which the driver learns from the server.
type OptionalProber interface {
	Prober
	// Probes returns false if Probe needs no call, as far as the driver knows now.
	Probes() bool
}

// Heartbeater is for a registry that forgets an entry unless it is renewed, in each [Traits.HeartbeatInterval].
type Heartbeater interface {
	// Heartbeat renews one entry and nothing else: it creates no entry, and puts none in or out of rotation. It is called
	// for every instance whose Register or FailOver was acknowledged, spread over the interval, until a Deregister of
	// it begins; any other call can overtake it. If there is no such entry, or it has another UID, or this process can't renew it
	// (it belongs to another's session or lease), the error is marked by [NotRegistered], and Rollcall repeats the call that
	// the instance needs: none for one that is out of rotation.
	Heartbeat(ctx context.Context, in Instance) error
}

// takeover is that of the default lease of 15 s (docs/leadership.md): another manager has it after 19 s at most, and has to catch up.
const takeover = 20 * time.Second

// LeastLease is how long an entry that is renewed once in each interval must stay in rotation without a renewal. With a
// shorter lease, the death of a leader takes every pod out of rotation: the last renewal can be an interval old by then, another
// manager has to take over, and it renews the entry within an interval. A driver refuses a shorter lease.
func (c Config) LeastLease(interval time.Duration) time.Duration {
	return 2*interval + cmp.Or(c.Takeover, takeover)
}

// Batcher is for a registry that takes many changes in one call.
type Batcher interface {
	// BatchLimit is how many changes one call may have now, at least 1; with 1, each change is a call of its own.
	BatchLimit() int

	// Batch makes the changes and returns one error for each, in their order. Each error means the same as that of a single call.
	// The order in which the changes are made does not matter: no two have the same identity. They can be of many services, all in
	// one place. A change that was undone, or not tried, because of another one is marked by [NotApplied]; Rollcall then makes that
	// call by itself. A change that fails [Change.Check] gets that error, and is not made.
	Batch(ctx context.Context, changes []Change) []error
}

// Change is one call in a batch: Register for InService, FailOver for OutOfService, Deregister for Absent.
type Change struct {
	Instance Instance
	State    State
}

// Check returns a terminal error if the state is none of the three: a guess could remove a pod that serves.
func (c Change) Check() error {
	switch c.State {
	case InService, OutOfService, Absent:
		return nil
	case Foreign: // the state of others' entries
	}
	return Terminal(fmt.Errorf("changing %s at %s to state %q: use %s, %s or %s",
		c.Instance.Service, c.Instance.Endpoint(), c.State, InService, OutOfService, Absent))
}

// Make makes a change by a call of its own.
func (c Change) Make(ctx context.Context, reg Registry) error {
	switch c.State {
	case InService:
		return reg.Register(ctx, c.Instance)
	case OutOfService:
		return reg.FailOver(ctx, c.Instance)
	case Absent:
		return reg.Deregister(ctx, c.Instance)
	case Foreign:
	}
	return c.Check()
}
