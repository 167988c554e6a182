// Package consul keeps instances in the catalog of HashiCorp Consul.
//
// # Catalog, not agent
//
// An entry that is registered through an agent belongs to that agent: its anti-entropy removes what it does not know of its
// own node (hashicorp/consul#7513), and the agent's entries disappear with it. So the driver writes to the servers' catalog,
// under a node on which no agent runs, as consul-k8s does: "synthetic-node" in the node's meta keeps it out of the UI's list of
// nodes. It does not have "external-node", with which consul-esm would run health checks on it.
//
// # Thirty-two nodes for all
//
// The entries of all clusters are under 32 nodes, rollcall-00 to rollcall-31; the address of an entry decides under which.
// The alternatives are one node, one for each cluster, and one for each address.
//
//   - An entry's identity is service, address and port. With a node for each cluster, an address could have two entries: after
//     it has moved from a pod of one cluster to a pod of another, taking the new entry out of rotation would leave the old one
//     in, and clients would still use the address. So all clusters have the same nodes, and an identity has one service ID.
//     To keep clusters apart, each with a token for its own nodes, set the option nodePrefix.
//   - Clients use the address of the service, and that of the node only if a service has none. DNS answers A with the
//     service's address, and SRV with a name made from it. So a node needs no address of its own.
//   - For each service that changes, Consul's servers read all checks of its node (agent/consul/state,
//     newServiceHealthEventForService): with 5,000 entries on one node that takes each of them 5 ms for a registration,
//     during which nothing else is written. /v1/catalog/register also reads all services of the node. With 32 nodes it is
//     1/32 of that, which is less than the write itself costs.
//   - A change of a node's own record, or of a check of the node, affects all of its services and wakes each client that
//     watches one of them. So the record changes only when the node appears and when it is about to be deleted, and checks
//     belong to services.
//   - All entries can be read with 33 requests whose paths have only the nodes, whatever characters service names have: some
//     characters can't be sent in a path. With a node for each address it would be thousands of requests, and a node would
//     come and go with every pod.
//   - If a node is lost, the services under it are lost. The driver never removes a node that has services: see below.
//
// Each node has an ID, made from its name. Because of the ID, the server refuses to overwrite the node of a live agent with the
// same name.
//
// # Transactions
//
// Every change is one transaction (https://developer.hashicorp.com/consul/api-docs/txn), which is applied as a whole or not at
// all. Register sets node, service and check. Setting a node to its current value changes nothing, like SkipNodeUpdate in a
// catalog registration. FailOver and Deregister read the service first, consistently and not from a follower's stale copy,
// leave it alone if its UID differs, and then make the change under the condition that its ModifyIndex is still the one that was
// read. If it is not, nothing was changed, and they read again: that is not a retry of a failed call, and it is bounded. Each
// Register changes the ModifyIndex, so that a FailOver or Deregister that was given up and arrives late finds it changed. A batch
// is the same with more operations in one transaction.
//
// # Dropping an empty node
//
// Deleting a node deletes its services, and the condition of a delete is the ModifyIndex of the node, which does not
// change when a service is registered. So the driver first flags an empty node, and deletes it if it is still empty afterwards
// and its ModifyIndex is that of the flag. Register, which sets the whole record, removes the flag and so changes the index: a
// registration before the flag is seen, and one after it stops the delete.
//
// # HTTP, no client library
//
// The driver uses the HTTP API (https://developer.hashicorp.com/consul/api-docs) by package driverkit: six requests. Consul's
// own client reads defaults from the environment (CONSUL_HTTP_TOKEN, CONSUL_NAMESPACE and others), drops the status and the
// headers of some answers, reads answers without a limit, and brings fifteen modules.
package consul
