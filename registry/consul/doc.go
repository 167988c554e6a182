// Package consul keeps instances in the catalog of HashiCorp Consul.
//
// # Catalog, not agent
//
// What is registered through an agent belongs to that agent: its anti-entropy removes what it does not know of its own
// node (hashicorp/consul#7513), and its entries go with it. So the driver writes the servers' catalog, under a node that
// no agent runs on, as consul-k8s does: "synthetic-node" in the node's meta keeps it out of the UI's list of nodes. It
// does not carry "external-node", which would give it to the health checks of consul-esm.
//
// # Thirty-two nodes for all
//
// The entries are under 32 nodes, rollcall-00 to rollcall-31, whatever cluster they are of; the address decides under which.
// The alternatives are one node, one for each cluster, and one for each address.
//
//   - An entry's identity is service, address and port. Two entries on two nodes would be two: after an address has moved
//     from a pod of one cluster to a pod of another, taking the new entry out of service would leave the old one in, and
//     clients would go on to that address. So all clusters have the same nodes, and there is only one service ID for it.
//     Who wants clusters apart, each with a token for its own nodes, sets the option nodePrefix.
//   - Clients use the address of the service, and that of the node only where a service has none. DNS answers A with the
//     service's address, and SRV with a name made of it. So a node needs no address of its own to be of use.
//   - For each service that changes, Consul's servers read all checks of its node (agent/consul/state,
//     newServiceHealthEventForService): with 5,000 entries on one node that takes each of them 5 ms for a registration,
//     during which nothing else is written. /v1/catalog/register reads all services of the node besides. With 32 nodes it
//     is 1/32 of that, and less than the write itself costs.
//   - A change of a node's own record, or of a check of the node, concerns all of its services and wakes each client
//     that watches one of them. So the record changes only when the node appears and when it is about to go, and the checks are the
//     services'.
//   - All entries can be read with 33 requests that name only the nodes, whatever characters service names have: in a path,
//     not all of them arrive. With a node for each address it would be thousands, and a node would come and go with every
//     pod.
//   - What is lost with a node is what stands under it. Nothing here removes a node that has services: see below.
//
// Each node has an ID, made of its name. With it the server itself refuses to write over the node of an agent that is
// alive and has the same name; without it, it would not.
//
// # Transactions
//
// Every change is one transaction (https://developer.hashicorp.com/consul/api-docs/txn), which is made whole or not at
// all. Register sets node, service and check. Setting a node to what it is changes nothing: that is what catalog
// registration has SkipNodeUpdate for. FailOver and Deregister read the service first, consistently and not from a
// follower's stale copy, spare it if its UID differs, and then make the change under the condition that its ModifyIndex is
// still the one that was read. If it is not, nothing was changed, and they look again: that is no retry of a call that
// failed, and it is bounded. Each Register changes the ModifyIndex, so that a FailOver or Deregister which was given up
// and lands late finds it changed. A batch is the same with more operations in one transaction.
//
// # Dropping an empty node
//
// Deleting a node deletes its services, and the condition of a delete is the ModifyIndex of the node, which does not
// change when a service is registered. So an empty node is first marked, and deleted if it is still empty after that and
// its ModifyIndex that of the mark. Register, which sets the whole record, removes the mark and so changes the index: a
// registration before the mark is seen, and one after it stops the delete.
//
// # HTTP, no client library
//
// The driver speaks the HTTP API (https://developer.hashicorp.com/consul/api-docs) with package driverkit: six requests.
// Consul's own client takes what it is not told from the environment (CONSUL_HTTP_TOKEN, CONSUL_NAMESPACE and others), drops
// the status and the headers of some answers, reads them without a bound, and brings fifteen modules.
package consul
