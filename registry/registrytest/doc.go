// Package registrytest has the conformance suite that every driver must pass, [Run]. A driver's own test specifies how to make the driver,
// and what its registry can't do:
//
//	func TestConformance(t *testing.T) {
//		registrytest.Run(t, registrytest.Harness{Open: open, Refusing: openWithWrongToken, …})
//	}
//
// The package imports only the standard library and package registry, so a driver in another module can use it.
package registrytest
