// Package consul runs a real Consul server, and proves Rollcall's consul driver on it.
package consul
