// Package consul runs a real Consul server. The tests of test/registries/consul prove the driver on it.
package consul
