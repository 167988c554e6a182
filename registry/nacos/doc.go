// Package nacos keeps instances in Nacos, the registry of Spring Cloud Alibaba and Dubbo, of versions 2 and 3.
//
// # HTTP, not the SDK
//
// Nacos has a Go client, github.com/nacos-group/nacos-sdk-go. Over gRPC, which it uses, a server keeps one instance for each
// service and connection: the next one that is registered replaces it (alibaba/nacos#5863, #11997). That suits an application
// that registers itself, but not a process that registers many. Over HTTP an entry belongs to its address, so the driver uses
// the HTTP API: v3 for servers that have it, from 3.0 on (from 3.2 on it is the only one), and v1, which all 2.x have, for
// others; or v2, which exists from 2.2 on, if the options choose it. The driver asks each address once which API it has, and again
// when the paths no longer exist: the servers of a cluster are upgraded one by one. The paths and parameters are from the
// documentation (https://nacos.io/docs/v2.5/manual/user/open-api, https://nacos.io/docs/v3.0/manual/admin/admin-api), and what that
// leaves out is from the controllers in nacos-naming (https://github.com/alibaba/nacos).
//
// # What a reader sees
//
// A server answers all reads, even the administrator's, from a copy that it renews up to 500 ms after a change (ServiceStorage,
// PushDelayTask); it notifies its subscribers then. So Nacos' answer to a write is not the acknowledgement that
// registry.Registry promises, and an entry's ownership tag may still be the previous pod's. The driver acknowledges a write once a
// read shows it. It recognizes it by a stamp in the metadata, which no two writes share.
//
// # enabled
//
// The flag enabled decides whether an instance is in rotation. There are two: what POST registers, and what PUT sets. The latter
// overrides the former, including metadata and weight, and outlives the removal of the instance: for 60 s or, in 2.x up to 2.5.0,
// forever (NamingMetadataManager, PersistentClientOperationServiceImpl). So Register makes both requests, in this order: a PUT
// creates no instance, and after a POST alone an entry may still be out of rotation, or have another pod's ownership tag.
// Deregister resets what PUT has set, so that it does not affect those who only POST.
//
// # Two pods at one address
//
// Nacos has no conditional change. FailOver and Deregister read the entry first, leave it alone if its UID differs, and then
// change it; that undoes a Register of the next pod that comes between the two. Register corrects that: it acknowledges only
// what readers see, writes again what they don't see within a second, and, if it takes over an address, registers again a second
// later. Only a call that was held up for longer than that between its read and its change is not covered.
//
// # Health
//
// Servers probe persistent instances by TCP unless the health checker of the service's cluster is NONE. Pods often have
// addresses that the servers can't reach, and such a pod would never be healthy; Kubernetes probes the pod already, and
// Rollcall follows that. So the driver sets NONE when it registers the first instance of a service, and as long as it finds only
// its own. If others have instances and the checker is not NONE, the driver registers an instance as unhealthy and leaves its health
// to the servers: Probe succeeds once they consider it healthy.
package nacos
