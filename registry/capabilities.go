package registry

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The optional capabilities of a [Registry] are found by type assertion when Rollcall has made it, never later. What
// [Registry] says of contexts, concurrency, retries and error classes holds for their methods too; those that take no context
// return at once, and may be called at any time. io.Closer is one more, see [Constructor].

// Lister is for a registry that can be asked what there is.
type Lister interface {
	// List returns every entry whose mark names the cluster, in no particular order. It is all or nothing: a partial
	// answer is an error.
	//
	// Of what others wrote it may return entries that are in service and carry no mark, with the state Foreign and nothing
	// but service, address, port and [MetaIPv6]: where one of them stands at a pod's identity, clients are sent to the pod by it.
	List(ctx context.Context, cluster string) ([]Entry, error)
}

// Placer is for a registry that keeps services apart in places, such as its namespaces, and is configured to choose a pod's place by what
// Kubernetes says of the pod. There, [Instance.Service] is the place, a slash and the name, such as team-a/orders. A place has as many
// slashes as the template, so that the name may have some too: see [SplitPlace].
type Placer interface {
	// PlaceTemplate is the place of every pod, with {namespace}, {label:KEY} and {nsLabel:KEY} for its namespace, a label of it and a label
	// of its namespace. It is always the same. Empty: there are no places, a service is its name, and ListPlaces is not called.
	PlaceTemplate() string
	// ListPlaces is List of the places in which the cluster has pods, and called in its stead. Who may label a pod may choose its place, so
	// one that the registry can't have or refuses to list counts as empty, unless it refuses all.
	ListPlaces(ctx context.Context, cluster string, places []string) ([]Entry, error)
}

// SplitPlace returns the place and the name of a service in a registry with this [Placer.PlaceTemplate]. What has too few slashes for a
// place is all name, and so is everything if the template is empty.
func SplitPlace(template, service string) (place, name string) {
	if template == "" {
		return "", service
	}
	slashes, inBraces := 1, false // a label's key may have one
	for _, c := range template {
		switch {
		case c == '{' || c == '}':
			inBraces = c == '{'
		case c == '/' && !inBraces:
			slashes++
		}
	}
	parts := strings.SplitN(service, "/", slashes+1)
	if len(parts) <= slashes {
		return "", service
	}
	return strings.Join(parts[:slashes], "/"), parts[slashes]
}

// StaleLister is a [Lister] whose answers lag behind what the registry has acknowledged, because the registry answers
// from a cache.
type StaleLister interface {
	Lister
	// Staleness is how long after it was acknowledged a change may be missing from an answer. It is always the same;
	// zero means never.
	Staleness() time.Duration
}

// Getter is for a registry that can be asked what it says of one instance now.
type Getter interface {
	// Get returns what the registry says of the instance: Foreign where another's entry is in service at its identity and
	// the driver can see that, else InService or OutOfService, or Absent where there is no entry of its identity, or one
	// that carries another cluster or that the instance does not own. It is read where writes are acknowledged: a change
	// that was acknowledged before the call began is never missing from the answer. A driver that can only read a cache
	// which lags, or a replica, is no Getter. With an error the state says nothing.
	//
	// Get changes nothing. It is called after a call whose outcome is unknown, once nothing of that can be carried out any
	// more, and before OpenKruise is let go on; never where all calls were acknowledged. For an [AppRegistry] it is also
	// called every 5 s for each entry that has to be out of service, once in each interval of resync for each that has to
	// be in it, and once the pod is gone.
	Get(ctx context.Context, in Instance) (State, error)
}

// Prober is for a registry in which an instance that was registered is not given to clients yet: because the registry
// checks it first, say.
type Prober interface {
	// Probe returns nil once clients are given the instance. Otherwise the error says what is missing; the same classes
	// hold as for a call. It is called after Register was acknowledged, before OpenKruise goes on or the pod leaves another
	// registry for this one, and changes nothing.
	Probe(ctx context.Context, in Instance) error
}

// OptionalProber is a [Prober] whose server may have nothing to ask, which the driver learns from it.
type OptionalProber interface {
	Prober
	// Probes returns false where Probe needs no call, as far as the driver knows now.
	Probes() bool
}

// LaggingReaders is for a registry whose clients learn of a change some time after it was acknowledged, because they or the
// registry answer from a cache.
type LaggingReaders interface {
	// ReaderLag is how long that takes at most, with the defaults of the registry and its usual clients. It is always the
	// same. After a Register was acknowledged, Rollcall waits that long before OpenKruise counts on the pod, unless the
	// configuration's readerLag says otherwise.
	ReaderLag() time.Duration
}

// Weigher is for a registry whose clients share requests out by [Instance.Weight]. Warm-up needs it.
type Weigher interface {
	// Weighs reports whether they do, as the registry is configured. It is always the same.
	Weighs() bool
}

// Follower is for a registry that is not written: it follows the pod's condition rollcall.dev/InRotation. Rollcall writes the condition
// True once all other registries of the pod have acknowledged it in service, and False once it must be out. Register, FailOver and
// Deregister change nothing, and return an error marked by [NotYet] until clients are given what they ask for.
type Follower interface {
	// FollowsCondition is never called. Nothing is left of a pod that is gone, so there is nothing to list and nothing to guard.
	FollowsCondition()
}

// Heartbeater is for a registry that forgets an entry unless it is renewed.
type Heartbeater interface {
	// HeartbeatInterval is how often each entry must be renewed. It is always the same; zero means that nothing needs
	// renewing as this registry is configured, and Heartbeat is not called.
	HeartbeatInterval() time.Duration

	// Heartbeat renews one entry and nothing else: it makes no entry, and puts none in or out of service. It is called
	// for every instance whose Register or FailOver was acknowledged, spread over the interval, until a Deregister of
	// it begins; one that is under way may be overtaken by any other call. Where there is no such entry, or it
	// carries another UID, or this process can't renew it (it is of a session or lease of another), the error is
	// marked by [NotRegistered], and Rollcall makes the call again that the instance needs: none for one that is out of service.
	Heartbeat(ctx context.Context, in Instance) error
}

// takeover bounds the time without a leader when one has died: another manager has the lease after 19 s at most
// (docs/leadership.md), and has to catch up.
const takeover = 20 * time.Second

// LeastLease is how long an entry that is renewed once in each interval must be left in service without that. With a
// shorter lease, a leader that dies takes every pod out of service: the last renewal may be an interval old by then, another
// manager has to take over, and the entry's turn with that one comes within an interval. A driver refuses a shorter one.
func LeastLease(interval time.Duration) time.Duration { return 2*interval + takeover }

// Batcher is for a registry that takes many changes in one call.
type Batcher interface {
	// BatchLimit is how many changes one call may have now, at least 1; with 1 each change is a call of its own.
	BatchLimit() int

	// Batch makes the changes and returns one error for each, in their order. Each means what the error of the call by
	// itself would mean, and the order in which the changes are made does not matter: no two have the same identity.
	// They may be of many services. A change that was undone, or not tried, because of another one is marked by
	// [NotApplied]; Rollcall then makes its call by itself. One that fails [Change.Check] has that error, and is not made.
	Batch(ctx context.Context, changes []Change) []error
}

// Change is one call in a batch: Register for InService, FailOver for OutOfService, Deregister for Absent.
type Change struct {
	Instance Instance
	State    State
}

// Check returns a terminal error where the state is none of the three: a guess could remove a pod that serves.
func (c Change) Check() error {
	switch c.State {
	case InService, OutOfService, Absent:
		return nil
	case Foreign: // it is what others say
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
