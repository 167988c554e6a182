// Package etcd runs a real etcd, and proves Rollcall's etcd driver on it.
package etcd
