package registry

// AppEntrySteerer is for a registry in which applications register themselves, and in which somebody else can take an
// application's entry out of rotation and put it back: by a flag, an override or a maintenance mode that outlives the
// application's own renewals.
type AppEntrySteerer interface {
	// AppEntries returns the registry of the applications' entries. It shares connections, credentials and limits with the
	// driver, and the driver closes it. Rollcall calls AppEntries once, when it has made the driver, and uses [Batcher] and
	// [Prober] of what it returns. The driver's own [Traits] apply to these entries too.
	//
	// The entry of an instance is the one that an application wrote at the instance's service, address and port, whatever
	// its ID. Several of them at one endpoint belong together: all are taken out and put back, their state is what clients are
	// given, and the error of the change is marked by [SeveralEntries]. An entry with an ownership tag is not an application's.
	// Neither [SeveralEntries] nor [OtherNames] is needed if the driver's list has what others wrote: the list shows both.
	//
	// There, the methods of [Registry] mean:
	//
	//   - Register puts the application's entry back into rotation, and is acknowledged once clients are given it. If the
	//     application has not registered, or reports that it is not up, the error is marked by [NotRegistered] and shows
	//     what was looked for and where; [OtherNames] adds where else it has registered. Rollcall waits and calls again.
	//   - FailOver takes the entry out of rotation, and it stays out while the application renews it. No entry is a success.
	//   - Deregister does the same as FailOver while the entry is there. Once it has gone, Deregister removes what the
	//     registry remembers of it, so that the next pod at that address starts in rotation.
	//   - Get, which every such registry has, returns InService, OutOfService, or Absent if the application has not
	//     registered. Rollcall asks it at each address of the pod at which no entry was ever seen; there, Absent is not an
	//     acknowledgement.
	//
	// No method creates or deletes an application's entry, or changes anything of it except whether clients are given it.
	AppEntries() AppRegistry
}

// AppRegistry is a [Registry] of the entries that applications wrote themselves; see [AppEntrySteerer].
type AppRegistry interface {
	Registry
	Getter
}

// EntryMatcher is for an [AppRegistry] in which one entry of an application can be that of two instances of its pod.
type EntryMatcher interface {
	// MayBeOne reports whether that can be so for these two, which are of one pod and differ. Rollcall then never takes one of them
	// out while the pod must be in rotation by the other. It is not asked about two in different places. Without an EntryMatcher, an entry
	// is identified by its place, its address, its port, and its service in upper or lower case. It is pure.
	MayBeOne(a, b Instance) bool
}
