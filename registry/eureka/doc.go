// Package eureka keeps instances in Netflix Eureka, as Spring Cloud or Netflix itself serve it.
//
// # REST, no client library
//
// Eureka is spoken to over its REST API (https://github.com/Netflix/eureka/wiki/Eureka-REST-operations) with net/http.
// Its own client is Java. The Go clients that there are register the one process that they run in: they keep one
// instance, beat for it by themselves, and read through a cache of their own, while Rollcall registers for thousands of
// pods, has its own loop for heartbeats and decides on what the server says now. None of them undoes a status override
// or fails over between peers for a single call.
//
// What follows was read in the server's source (eureka-core 2.0.5: InstanceResource, AbstractInstanceRegistry,
// ResponseCacheImpl) and is held against a real server by test/registries/eureka.
//
// # What decides a status
//
// An instance has the status that it was registered with and, by PUT …/status, an override, which the server keeps apart
// and by instance ID alone, whatever application it is of. So the ID has the service in it. At a POST the server takes
// the first of these that applies: STARTING and DOWN are believed; an override wins; an entry that is UP or
// OUT_OF_SERVICE already stays so; else the status is the one that was posted. From that follows
//
//   - that a pod is taken out by a POST with STARTING, which no reader is given, and put back by one with UP. Both have a
//     lastDirtyTimestamp: a peer keeps the later one, in whatever order it hears of them, and a renewal that a peer replicates makes
//     up for one that was missed. An override has no time. Peers replicate it and its removal on several connections, give up after
//     30 seconds (maxTimeForReplication), and what is carried out last stays;
//   - that a POST with UP does not put back what an override took out, an operator's or an earlier version's: DELETE
//     …/status?value=UP does. Without the value the status turns UNKNOWN, which is renewed with 404 (Netflix/eureka#955);
//   - that a POST with OUT_OF_SERVICE takes nothing out that is UP, and leaves what it makes without an override, so that
//     neither POST nor DELETE put it back (Netflix/eureka#1398). It is never sent. Where somebody else has sent it, an
//     override UP is set and then removed;
//   - that a renewal which the server is carrying out can put back the status that it read before an override. So who sets the override
//     of an application's entry looks whether it holds;
//   - that an override goes to all peers, marked as replicated: one that passed it on could do so after the next change;
//   - that a peer replicates a POST up to a second after it has acknowledged it, out of its memory. So the entry that was read back
//     goes to all peers too, with its time;
//   - that the override goes with the entry when this is removed or evicted (Netflix/eureka#1116), and is set again.
//
// # Whose clock
//
// A POST over an entry whose lastDirtyTimestamp is later is answered 204, and changes nothing but the lease. So no time of
// ours is sent: the server then takes its own, and a manager whose clock is wrong does no harm. Only where the entry is of
// another server whose clock is ahead, or of a client that sent a time in the future, is the POST made again, with the
// time after that.
//
// # What is read
//
// GET /apps/{app}/{id} reads the registry itself, and is what every decision rests on: the UID mark, and that a Register
// has ended with the status UP. It hides an entry whose lease has ended until that is evicted, which /apps and with it
// every client still show; renewing the lease brings it to light. GET /apps goes through a cache of the server's, and is
// used for List only; see [Registry.Staleness].
//
// # No conditional delete
//
// Between reading the mark and the change that follows, somebody else can register at the identity, and the change then
// hits that entry. No request of Eureka's has a condition that would prevent it. Within this process a lock for each
// identity does. A manager that has lost its lease has no call under way when the next one acts, since its time-out is
// shorter than what is left of the lease. What is left are two clusters whose pods have the same address, and then an
// entry that went by mistake is put back at its next heartbeat.
package eureka
