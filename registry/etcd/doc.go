// Package etcd registers instances in etcd in the format that gRPC's etcd resolver reads
// (go.etcd.io/etcd/client/v3/naming/resolver): a key {target}/{address}:{port} for each instance, whose value is JSON with
// Op, Addr and Metadata, as go.etcd.io/etcd/client/v3/naming/endpoints writes it.
//
// It uses etcd's own Go client, go.etcd.io/etcd/client/v3, with three features turned off: the client sends nothing twice, does
// not wait for a connection that does not come, and does not log in by itself, which would require a reachable etcd at the start.
// The package naming/endpoints is not used for writing: its updates have no conditions, and a removal here has the condition that
// no other call has changed the entry since its UID was read.
//
// Sources: the format, https://pkg.go.dev/go.etcd.io/etcd/client/v3/naming; transactions and leases,
// https://etcd.io/docs/v3.6/learning/api/; users and roles, https://etcd.io/docs/v3.6/op-guide/authentication/rbac/.
package etcd
