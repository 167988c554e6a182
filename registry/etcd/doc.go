// Package etcd registers instances in etcd in the format that gRPC's etcd resolver reads
// (go.etcd.io/etcd/client/v3/naming/resolver): a key {target}/{address}:{port} for each instance, whose value is JSON with
// Op, Addr and Metadata, as go.etcd.io/etcd/client/v3/naming/endpoints writes it.
//
// It is built on etcd's own Go client, go.etcd.io/etcd/client/v3, with three things of that turned off: it sends nothing
// twice, it does not wait for a connection that is not coming, and it does not log in by itself, which would need etcd at
// start-up. The package naming/endpoints is not used for writing: its updates have no conditions, and a removal here is on
// condition that no other call changed the entry since its UID was read.
//
// Sources: the format, https://pkg.go.dev/go.etcd.io/etcd/client/v3/naming; transactions and leases,
// https://etcd.io/docs/v3.6/learning/api/; users and roles, https://etcd.io/docs/v3.6/op-guide/authentication/rbac/.
package etcd
