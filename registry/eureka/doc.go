// Package eureka keeps instances in Netflix Eureka, as Spring Cloud or Netflix itself serve it.
//
// # REST, no client library
//
// The driver uses Eureka's REST API (https://github.com/Netflix/eureka/wiki/Eureka-REST-operations) with net/http. Eureka's own
// client is Java. The existing Go clients register the one process that they run in: they keep one instance, send its heartbeats,
// and read through a cache of their own. Rollcall registers thousands of pods, has its own loop for heartbeats, and decides by the
// server's current answer. None of these clients can undo a status override, or try the next peer for a single call.
//
// What follows is from the server's source (eureka-core 2.0.5: InstanceResource, AbstractInstanceRegistry, ResponseCacheImpl);
// test/registries/eureka checks it on a real server.
//
// # What decides a status
//
// An instance has the status that it was registered with and, by PUT …/status, an override, which the server stores separately
// and by instance ID alone, whatever its application. So the ID contains the service. At a POST the server takes the first of
// these that applies: STARTING and DOWN are taken as posted; an override wins; an entry that is already UP or OUT_OF_SERVICE keeps
// that status; otherwise the posted status counts. It follows
//
//   - that a pod is taken out by a POST with STARTING, which no reader is given, and put back by one with UP. Both have a
//     lastDirtyTimestamp: a peer keeps the later one, in whatever order they arrive, and a replicated renewal makes up for a missed
//     POST. An override has no timestamp. Peers replicate it and its removal on several connections and give up after 30 seconds
//     (maxTimeForReplication), and the one that is carried out last wins;
//   - that a POST with UP does not put back what an override took out, an operator's or an earlier version's: DELETE
//     …/status?value=UP does. Without the value the status turns UNKNOWN, which is renewed with 404 (Netflix/eureka#955);
//   - that a POST with OUT_OF_SERVICE takes nothing out that is UP, and leaves what it makes without an override, so that
//     neither POST nor DELETE puts it back (Netflix/eureka#1398). The driver never sends it. If somebody else has sent it, the driver
//     sets an override UP and then removes it;
//   - that a renewal which the server is carrying out can put back the status that it read before an override. So the driver checks
//     that the override of an application's entry lasts;
//   - that the driver sends an override to all peers, flagged as replicated: a peer that passed it on could do so after the next change;
//   - that a peer replicates a POST up to a second after it has acknowledged it, from memory. So the driver sends the entry that it
//     read back to all peers too, with its timestamp;
//   - that a peer which is killed takes along what it has acknowledged and not replicated yet, and that a peer which starts can register
//     what it fetched from another one after it was sent the removal of that (PeerAwareInstanceRegistryImpl.syncUp). Nothing in Eureka
//     repairs that before the lease ends. So the driver lists, asks and tells all peers, also those that only Eureka knows;
//   - that a renewal which a peer answers with 404 is followed by the entry as it was at the renewal (PeerEurekaNode.heartbeat), after a
//     removal that was sent with the renewal, or in place of a later POST that is to be sent again (AcceptorExecutor). A peer that was down
//     meanwhile can then give an entry that was taken out, until the driver's next heartbeat, or that was removed, until the next list;
//   - that the override goes with the entry when this is removed or evicted (Netflix/eureka#1116), and is set again.
//
// # Whose clock
//
// A POST over an entry with a later lastDirtyTimestamp is answered 204, and changes nothing but the lease. So the driver sends no
// timestamp: the server then takes its own, and a manager whose clock is wrong does no harm. If the entry is from another server whose
// clock is ahead, or from a client that sent a time in the future, the driver repeats the POST with a later timestamp.
//
// # What is read
//
// GET /apps/{app}/{id} reads the registry itself, and every decision is based on it: whose UID the entry has, and that a Register has
// ended with the status UP. It hides an entry whose lease has expired but that is not evicted yet, which /apps and so every client
// still show; a renewal of the lease makes it visible. GET /apps goes through a cache of the server, and is used for List only; see
// [Registry.Staleness].
//
// # No conditional delete
//
// After the driver has read the ownership tag and before its change, somebody else can register at the identity, and the change then
// affects that entry. No request of Eureka has a condition that would prevent it. Within this process, a lock for each identity
// does. A manager that has lost its lease has no call under way when the next one acts, since its timeout is shorter than the rest of
// the lease. Only two clusters whose pods have the same address are not covered; an entry that was removed by mistake is put back at
// its next heartbeat.
package eureka
