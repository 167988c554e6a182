package registrytest

import (
	"context"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// Harness makes drivers for the suite. The cases run in parallel on one harness, except for those that restart the registry;
// each uses cluster and service names of its own, so one registry serves them all, and removes what it wrote. A driver
// that is an io.Closer is closed. Each function gets the test of the case that calls it, and may end it; only Open is
// required.
type Harness struct {
	// Open returns a driver as a process that has just started makes it: it remembers nothing of earlier calls, and
	// works on the same registry as every other that this harness opened. The cluster is for registry.Config.Cluster.
	Open func(t testing.TB, cluster string) registry.Registry

	// Truth returns what the registry holds of a cluster, as its clients would see it, and never lags. If it is nil, a newly
	// opened driver is asked instead, which must then be a [registry.Lister]; if its lists are stale by its [registry.Traits], the suite
	// waits somewhat longer than its Staleness for the right answer.
	Truth func(ctx context.Context, cluster string) ([]registry.Entry, error)

	// Unreachable returns a driver whose registry can't be connected to; see [UnusedAddress].
	Unreachable func(t testing.TB) registry.Registry

	// Refusing returns a driver whose registry refuses every call in a way that a retry does not cure.
	Refusing func(t testing.TB) registry.Registry

	// LoginPage returns a driver whose registry answers every attempt as a proxy does that asks for a login: with status 200 and a web page.
	// It is nil if the registry does not speak HTTP.
	LoginPage func(t testing.TB) registry.Registry

	// WrongCredentials returns a driver with a token, password or certificate that the registry does not accept.
	WrongCredentials func(t testing.TB) registry.Registry

	// Stalled returns a driver whose registry takes connections and never answers; see [SilentAddress].
	Stalled func(t testing.TB) registry.Registry

	// LosingAnswers returns a driver as Open does, with a network in between that loses answers: the n-th answer that the registry sends
	// to the driver after lose was called is lost as a whole, and its connection breaks. lost reports whether that has happened.
	LosingAnswers func(t testing.TB, cluster string) (d registry.Registry, lose func(n int) (lost func() bool))

	// Metered returns a driver as Open does, and a function that returns what it has sent and got since it was made.
	Metered func(t testing.TB, cluster string) (d registry.Registry, spent func() Spent)
	// CostGrows is how many bytes of each other instance in its service a call may cost, by its name, as "Get", or "AppEntries()" for all
	// that steers an application. It is for a registry that can't be asked for less. Calls that are made together share that.
	// AppEntries() is not metered with -1: no application can have an entry next to Rollcall's in a service.
	CostGrows map[string]int
	// Bare returns the calls as plain requests, which cost the server no more of its CPU than they must. It is asked for only if Metered tells
	// of the server's CPU.
	Bare func(t testing.TB) Bare
	// Others is how many other instances are in the large service in which calls are metered; 0 means 200.
	Others int

	// Failing returns a driver whose registry answers every attempt with a temporary error, and a function that returns how
	// many attempts there were.
	Failing func(t testing.TB) (d registry.Registry, attempts func() int)

	// Restart stops the registry that Open's drivers work on and starts it again at the same address, with the data that it
	// keeps over a restart. It returns when the registry takes calls and gives that data to its clients. The cases that
	// need it run before all others and one after the other; a harness whose registry serves other tests at the same
	// time leaves it nil, or starts a registry of its own.
	Restart func(t testing.TB)

	// Foreign puts an entry into the registry as an application does that registers itself at the instance's service, address, as it is
	// written there, and port: in rotation, and without an ownership tag. It returns a function that removes it. It is nil if a registry can't
	// have such an entry next to Rollcall's, or if the driver can't see it.
	Foreign func(t testing.TB, at registry.Instance) (remove func())

	// Copy puts a copy of Rollcall's entry of the instance into the registry, in rotation and with its ownership tag, where the driver does
	// not write it: under another ID, key or node, as after a change of an option. It returns a function that removes it. It is nil if clients
	// can't be given such an entry.
	Copy func(t testing.TB, of registry.Instance) (remove func())

	// App returns an application that registers itself at the instance's service, address and port, by its registry's own
	// client and not through the driver. The application runs in the instance's pod: two at one address are in different pods.
	// What it has registered is removed when the test ends.
	App func(t testing.TB, at registry.Instance) App

	// ShortLease is like Open, with the shortest lease that the registry allows: the suite waits until entries expire.
	ShortLease func(t testing.TB, cluster string) registry.Registry

	// Placed returns a driver as Open does that is configured to choose places, and two places, which differ in all parts of the template.
	// It is nil if the driver is not a [registry.PlaceLister].
	Placed func(t testing.TB, cluster string) (d Placed, places [2]string)

	// RefusedPlace returns a driver as Placed does, and a place that the registry keeps from it.
	RefusedPlace func(t testing.TB, cluster string) (d Placed, place string)

	// Secrets are the tokens and passwords that the drivers were given, wrong ones too. No error may contain one.
	Secrets []string

	// Lacks lists what the registry can't do, with the reason: the cases that need it are skipped with that reason. The registry is
	// tested for everything that is not listed. The suite finds a driver's optional interfaces by type assertion, and skips the cases
	// of those that it does not have, and the cases that need a function that is nil here.
	Lacks map[Capability]string

	impatient *patience // nil except in the suite's own tests
}

// App is an application that registers itself. Its methods return when readers see what was done, and end the case if the
// registry does not do it.
type App interface {
	// Register writes the application's entry as its client does at the start, up.
	Register()
	// Renew does what its client does while the application runs: it sends a heartbeat, or registers everything again.
	Renew()
	// Deregister removes the entry as its client does when the application ends.
	Deregister()
	// Look reads the registry, bypassing its caches. It returns whether clients are given the entry, and everything else that
	// the registry holds of it, or "" if there is no entry.
	Look() (given bool, entry string)
}
