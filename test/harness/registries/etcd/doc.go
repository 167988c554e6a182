// Package etcd runs a real etcd. The tests of test/registries/etcd prove the driver on it.
package etcd
