package registry

import "time"

// Traits is what Rollcall has to know of a registry, as it is configured, in addition to what its methods do. The zero value fits a
// registry whose clients learn of a change with the acknowledgement, and whose entries stay until they are removed.
type Traits struct {
	// ReaderLag is how long it takes, at most, until clients learn of an acknowledged change, with the defaults of the registry and its
	// usual clients, because they or the registry answer from a cache. After a Register was acknowledged, Rollcall waits that long before
	// OpenKruise counts the pod as available, unless the configuration sets readerLag.
	ReaderLag time.Duration
	// Staleness is how long after its acknowledgement a change can be missing from a list, because the registry lists from a cache.
	Staleness time.Duration
	// HeartbeatInterval is how often a [Heartbeater] must renew each entry. With zero, entries need no renewal, and Heartbeat is not called.
	HeartbeatInterval time.Duration
	// Weighs: clients distribute requests by [Instance.Weight]. Warm-up needs it.
	Weighs bool
	// PlaceTemplate is for a registry that keeps services apart in places, such as its namespaces, and is configured to choose a pod's place
	// by the pod's namespace or labels: the place of every pod, with {namespace}, {label:KEY} and {nsLabel:KEY} for its namespace, a label of
	// it and a label of its namespace. Filled in, it is the [Instance.Place] of each call. Such a registry is a [PlaceLister]. If it is empty,
	// there are no places.
	PlaceTemplate string
	// FollowsCondition: Rollcall does not write to the registry, which follows the pod's condition rollcall.dev/InRotation. Rollcall sets the
	// condition to True once all other registries of the pod have acknowledged it as in rotation, and to False once it must be out.
	// Register, FailOver and Deregister change nothing, and return an error marked by [NotYet] until clients see the requested state.
	// Nothing is left of a pod that is gone, so there is nothing to list and nothing to guard.
	FollowsCondition bool
	// CallsPods is for applications that take themselves out of rotation when they are asked to. There is no server: the driver calls the
	// pod itself, at the address of the instance. Rollcall has no entries there, so it uses only the methods of
	// [AppEntrySteerer.AppEntries], and the configuration must set registeredBy: App. A pod has one application here, whatever its services
	// and ports: it is asked to leave only if the pod must be out by all of them, and by every other registry in which applications
	// register themselves.
	//
	// The address is always the pod's own IP. Rollcall makes no call once the pod is gone or none of its containers runs: its application is
	// then out of rotation, and the next pod at the address is another one. A pod that can't be reached can still have clients:
	// it does not count as out. A pod that fails does not hold up the calls to others. If no application answers, the methods return an error,
	// not Absent or success.
	CallsPods bool
}

// Describer is for a registry whose traits differ from the zero value.
type Describer interface {
	// Traits are always the same for one driver. It makes no call.
	Traits() Traits
}

// TraitsOf returns those of a registry.
func TraitsOf(r Registry) Traits {
	if d, is := r.(Describer); is {
		return d.Traits()
	}
	return Traits{}
}
