// Package registries runs the real registry servers that the drivers are proven against, on loopback and free ports,
// without a container engine and without root. A [Cluster] of several servers requires root: each has a network of its own.
//
// Each registry has a package of its own below, with
//
//	Get(ctx, log)        makes the server available on this machine: builds it, downloads it, or finds it installed
//	Start(ctx, Options)  runs one
//
// The tests in test/registries/<driver> prove the driver on it: the conformance suite, and that real readers see what was
// written. A test gets a server of its own with [Use], or one that all tests of its package share with [Share]. Where a server
// can't be had on this machine (an error marked by [Missing]), the test is skipped and the closing table of
// `make test-registries` says so; with CI=true or ROLLCALL_REGISTRIES_REQUIRED=1 it fails, as it always does if a server can't be built.
package registries
