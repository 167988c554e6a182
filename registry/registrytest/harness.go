package registrytest

import (
	"context"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// Harness makes drivers for the suite. The cases run in parallel on one harness, but for those that restart the registry;
// each uses cluster and service names of its own, so one registry serves them all, and removes what it wrote. A driver
// that is an io.Closer is closed. Each function gets the test of the case that calls it, and may end it; only Open has to be
// given.
type Harness struct {
	// Open returns a driver as a process that has just started makes it: it remembers nothing of earlier calls, and
	// works on the same registry as every other that this harness opened. The cluster is for registry.Config.Cluster.
	Open func(t testing.TB, cluster string) registry.Registry

	// Truth returns what the registry holds of a cluster, as its clients would see it, and never lags. Nil: a newly
	// opened driver is asked, which must be a [registry.Lister] then; if it is a [registry.StaleLister], the suite waits
	// for the right answer as long as it says, and some more.
	Truth func(ctx context.Context, cluster string) ([]registry.Entry, error)

	// Unreachable returns a driver whose registry can't be connected to; see [UnusedAddress].
	Unreachable func(t testing.TB) registry.Registry

	// Refusing returns a driver whose registry refuses what it is asked in a way that trying again does not cure.
	Refusing func(t testing.TB) registry.Registry

	// WrongCredentials returns a driver that shows the registry a token, password or certificate which is not good
	// there.
	WrongCredentials func(t testing.TB) registry.Registry

	// Stalled returns a driver whose registry takes connections and never answers; see [SilentAddress].
	Stalled func(t testing.TB) registry.Registry

	// LosingAnswers returns a driver as Open does, with a network in between that loses answers: the n-th answer that the registry sends
	// to the driver after lose was called is lost, all of it, and its connection breaks. lost reports whether that has happened.
	LosingAnswers func(t testing.TB, cluster string) (d registry.Registry, lose func(n int) (lost func() bool))

	// Failing returns a driver whose registry answers every attempt with a passing error, and a function that says how
	// many attempts there were.
	Failing func(t testing.TB) (d registry.Registry, attempts func() int)

	// Restart stops the registry that Open's drivers work on and starts it again at the same address, with what it keeps
	// over a restart. It returns when the registry takes calls and gives its clients what it has kept. The cases that
	// need it run before all others and one after the other; a harness whose registry serves other tests at the same
	// time has none, or starts one of its own.
	Restart func(t testing.TB)

	// Foreign puts an entry into the registry as an application does that registers itself at the instance's service, address
	// and port: in service, and with no mark. It returns a function that removes it. Nil where a registry can have no such
	// entry beside Rollcall's, or the driver can't see it.
	Foreign func(t testing.TB, at registry.Instance) (remove func())

	// App returns an application that registers itself at the instance's service, address and port, by its registry's own
	// client and not through the driver. The instance's pod is its host: of two at one address each has another. What it
	// has registered is removed in the end.
	App func(t testing.TB, at registry.Instance) App

	// ShortLease is as Open, with the shortest lease that the registry allows: the suite waits until entries expire.
	ShortLease func(t testing.TB, cluster string) registry.Registry

	// Placed returns a driver as Open does that is configured to choose places, and two places, which differ in all parts of the template.
	// Nil: it is no [registry.Placer].
	Placed func(t testing.TB, cluster string) (d Placed, places [2]string)

	// Secrets are the tokens and passwords that the drivers were given, wrong ones too. No error may hold one.
	Secrets []string

	// Lacks names what the registry can't do, and says why: the cases that need it are skipped with these words. Whatever it does
	// not name is claimed, and held to the contract. What the driver is besides a [registry.Registry] the suite finds by type
	// assertion, and skips what it is not, as it skips what needs a function that is nil here.
	Lacks map[Capability]string

	impatient *patience // nil but in the suite's own tests
}

// App is an application that registers itself. Its methods return when readers see what was done, and end the case where
// the registry does not do it.
type App interface {
	// Register writes the application's entry as its client does at the start, up.
	Register()
	// Renew does what its client does while the application runs: a heartbeat, or all that it has registered once more.
	Renew()
	// Deregister removes the entry as its client does when the application ends.
	Deregister()
	// Look reads the registry past its caches: whether clients are given the entry, and all that the registry says of it
	// besides; "" where there is none.
	Look() (given bool, entry string)
}
