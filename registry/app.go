package registry

// AppEntrySteerer is for a registry in which applications register themselves, and in which an entry that an application
// wrote can be taken out of rotation and put back by somebody else: by a flag, an override or a maintenance mode that
// outlives the application's own renewals.
type AppEntrySteerer interface {
	// AppEntries returns the registry of the applications' entries. It shares connections, credentials and limits with the
	// driver, and the driver closes it. Rollcall calls AppEntries once, when it has made the driver, and uses [Batcher] and
	// [Prober] of what it returns. The driver's own ReaderLag holds for these entries too.
	//
	// The entry of an instance is the one that an application wrote at the instance's service, address and port, whatever
	// its ID. Several of them at one endpoint go together: all are taken out and put back, what clients are given decides, and
	// the error of the change is marked by [SeveralEntries]. An entry with the mark of a Rollcall is no application's. Neither
	// that mark nor [OtherNames] is needed where the driver's list has what others wrote: the list says both.
	//
	// The methods of [Registry] mean there:
	//
	//   - Register puts the application's entry back into rotation, and is acknowledged once clients are given it. Where
	//     the application has not registered, or says itself that it is not up, the error is marked by [NotRegistered] and
	//     says what was looked for and where; [OtherNames] says where else it has registered. Rollcall waits and calls again.
	//   - FailOver takes the entry out of rotation, and it stays out while the application renews it. No entry is a success.
	//   - Deregister does what FailOver does while the entry is there. Once it has gone, Deregister removes what the
	//     registry remembers of it, so that the next pod at that address starts in rotation.
	//   - Get, which every such registry has, returns InService, OutOfService, or Absent where the application has not
	//     registered. Rollcall asks it at each address of the pod where nobody has seen an entry yet: Absent is no
	//     acknowledgement then.
	//
	// No method creates or deletes an application's entry, or changes anything of it but whether clients are given it.
	AppEntries() AppRegistry
}

// AppRegistry is a [Registry] of the entries that applications wrote themselves; see [AppEntrySteerer].
type AppRegistry interface {
	Registry
	Getter
}

// PodCaller is for applications that take themselves out of rotation when they are asked to. There is no server: the driver calls the
// pod itself, at the address of the instance. Rollcall has no entries there, so it uses only the methods of
// [AppEntrySteerer.AppEntries], and the configuration must set registeredBy: App.
//
// The address is always the pod's own IP. Rollcall makes no call once the pod is gone or none of its containers runs: its application is
// out then, and the next pod at the address is another one. A pod that can't be reached can still have clients, so it is not out. A pod
// that fails does not hold up the calls to others. The methods return an error, and not Absent or success, if no application answers.
type PodCaller interface {
	AppEntrySteerer
	// CallsPods does nothing.
	CallsPods()
}
