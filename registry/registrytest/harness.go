package registrytest

import (
	"context"
	"fmt"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// T is what the suite needs of a *testing.T.
type T interface {
	Helper()
	// Context ends before the functions given to Cleanup run.
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
}

var _ T = (*testing.T)(nil)

// Capability is something that a driver, its registry or its harness can have or lack. Its value is its name.
type Capability string

const (
	// OutOfServiceState: the registry can know an instance and not give it to clients. Without it FailOver removes.
	OutOfServiceState Capability = "OutOfServiceState"
	// Listing: the driver is a [registry.Lister].
	Listing Capability = "Listing"
	// AnyServiceName: the registry takes every service name as it stands.
	AnyServiceName Capability = "AnyServiceName"
	// Unreachable: the harness has [Harness.Unreachable].
	Unreachable Capability = "Unreachable"
	// Refusing: the harness has [Harness.Refusing].
	Refusing Capability = "Refusing"
	// Stalled: the harness has [Harness.Stalled].
	Stalled Capability = "Stalled"
	// Failing: the harness has [Harness.Failing].
	Failing Capability = "Failing"
)

// Harness makes drivers for the suite. All cases run in parallel on one harness; each uses cluster and service names of
// its own, so one registry serves them all, and removes what it wrote. A driver that is an io.Closer is closed.
type Harness struct {
	// Open returns a driver as a process that has just started makes it: it remembers nothing of earlier calls, and
	// works on the same registry as every other that this harness opened. The cluster is for registry.Config.Cluster.
	Open func(t T, cluster string) registry.Registry

	// Truth returns what the registry holds of a cluster, as its clients would see it. Nil: a newly opened driver is
	// asked, which must be a [registry.Lister] then.
	Truth func(ctx context.Context, cluster string) ([]registry.Entry, error)

	// Unreachable returns a driver whose registry can't be connected to; see [UnusedAddress].
	Unreachable func(t T) registry.Registry

	// Refusing returns a driver whose registry refuses what it is asked in a way that trying again does not cure, for
	// example because the token is wrong.
	Refusing func(t T) registry.Registry

	// Stalled returns a driver whose registry takes connections and never answers; see [SilentAddress].
	Stalled func(t T) registry.Registry

	// Failing returns a driver whose registry answers every attempt with a passing error, and a function that says how
	// many attempts there were.
	Failing func(t T) (d registry.Registry, attempts func() int)

	// Lacks names each capability that there isn't, and says why. The cases that need it are skipped with these words.
	// Whatever is not named here is claimed, and held to the contract.
	Lacks map[Capability]string
}

// check returns what is wrong with the harness itself.
func (h Harness) check() error {
	if h.Open == nil {
		return fmt.Errorf("harness: there is no Open")
	}
	if _, lacks := h.Lacks[Listing]; lacks && h.Truth == nil {
		return fmt.Errorf("harness: a driver that lacks %s needs Truth", Listing)
	}
	for _, f := range []struct {
		capability Capability
		given      bool
	}{
		{Unreachable, h.Unreachable != nil},
		{Refusing, h.Refusing != nil},
		{Stalled, h.Stalled != nil},
		{Failing, h.Failing != nil},
	} {
		if _, lacks := h.Lacks[f.capability]; lacks == f.given {
			return fmt.Errorf("harness: give either %s, or in Lacks the reason why not", f.capability)
		}
	}
	return h.checkReasons()
}

func (h Harness) checkReasons() error {
	for c, reason := range h.Lacks {
		switch c {
		case OutOfServiceState, Listing, AnyServiceName, Unreachable, Refusing, Stalled, Failing:
		default:
			return fmt.Errorf("harness: Lacks names %q, which is no capability", c)
		}
		if reason == "" {
			return fmt.Errorf("harness: Lacks gives no reason for %s", c)
		}
	}
	return nil
}
