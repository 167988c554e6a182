// Package nacos keeps instances in Nacos, the registry of Spring Cloud Alibaba and Dubbo, of versions 2 and 3.
//
// # HTTP, not the SDK
//
// Nacos has a Go client, github.com/nacos-group/nacos-sdk-go. Over gRPC, which it uses, a server keeps one instance for each
// service and connection: the next one that is registered takes the place of the one before (alibaba/nacos#5863, #11997).
// That suits an application that registers itself, and no process that registers many. Over HTTP an entry belongs to its
// address, so the driver speaks the HTTP API: v3 to servers that have it, from 3.0 on (from 3.2 on it is the only one), and
// else v1, which all 2.x have; v2, which they have from 2.2 on, if an option says so. Which it is, it asks each address once, and
// again when the paths are not there any more: a cluster is upgraded one by one. The paths and parameters are from the documents
// (https://nacos.io/docs/v2.5/manual/user/open-api, https://nacos.io/docs/v3.0/manual/admin/admin-api), what they leave out
// from the controllers in nacos-naming (https://github.com/alibaba/nacos).
//
// # What a reader sees
//
// A server answers all reads, the administrator's too, from a copy that it makes anew up to 500 ms after a change
// (ServiceStorage, PushDelayTask), and tells its subscribers then. So a write's acknowledgement is not the one that
// registry.Registry promises, and a look at an entry's mark may show the pod that was there before. The driver acknowledges
// a write once a read shows it. It knows it by a stamp in the metadata, which no two writes share.
//
// # enabled
//
// In service and out of service is the flag enabled. There are two: what POST registers, and what PUT sets; the latter
// beats the former, with its metadata and weight, and outlives the removal of the instance: 60 s or, in 2.x up to 2.5.0, for
// ever (NamingMetadataManager, PersistentClientOperationServiceImpl). So Register makes both requests, in this order: a
// PUT makes no instance, and after a POST alone an entry may still be out of service, or carry another pod's mark. For
// those who only POST, Deregister leaves nothing set that would hurt them.
//
// # Two pods at one address
//
// Nacos has no conditional change. FailOver and Deregister read the entry first, spare it if its UID differs, and act then;
// a Register of the next pod that falls between the two is undone by that. It is Register that puts that right: it acknowledges
// only what readers see, writes again what they don't see within a second, and where it takes an address over, it
// registers a second time a second later. What is left is a call that was held up for longer than that between its look
// and its act.
//
// # Health
//
// Servers probe persistent instances by TCP unless the health checker of the service's cluster is NONE. Pods often have
// addresses that the servers can't reach, and such a pod would never be healthy; Kubernetes has probed it already, and
// Rollcall acts on that. So the driver sets NONE where it registers the first instance of a service, and while it finds only
// its own. Where others have instances, and not NONE, it starts ours unhealthy and leaves it to the servers: Probe then agrees when they
// do.
package nacos
