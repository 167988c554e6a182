// Package registrytest is for those who write a driver, or test against one.
//
// [Run] is the conformance suite that every driver passes. A driver's own test says how to make the driver, and what
// its registry can't do:
//
//	func TestConformance(t *testing.T) {
//		registrytest.Run(t, registrytest.Harness{Open: open, Refusing: openWithWrongToken, …})
//	}
//
// [Fake] stands between a caller and a registry, writes down every call, and does on demand what real registries do now
// and then: refuse, hang, do the work and lose the answer, or do it after the caller has given up.
//
// The package imports only the standard library and package registry, so a driver in another module can use it.
package registrytest
