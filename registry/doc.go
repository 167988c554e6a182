// Package registry is what a service registry looks like to Rollcall.
//
// Rollcall is extended by implementing [Registry] and handing its constructor to app.Main under a driver name:
//
//	app.Main(app.WithRegistry("acme", acme.New))
//
// The package imports only the standard library, so that a driver in another module depends on nothing else of
// Rollcall. Package registrytest, beside it, is the suite that every driver passes.
package registry
