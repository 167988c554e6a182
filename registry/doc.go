// Package registry defines what a service registry looks like to Rollcall.
//
// To extend Rollcall, implement [Registry] and pass its constructor to app.Main with the name of the driver:
//
//	app.Main(app.WithRegistry("acme", acme.New))
//
// The package imports only the standard library, so that a driver in another module depends on nothing else of
// Rollcall. Package registrytest has the suite that every driver must pass.
package registry
