package registrytest

import (
	"fmt"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// Capability is something that a driver, its registry or its harness can have or lack. Its value is its name.
type Capability string

// What the registry can do.
const (
	// OutOfServiceState: the registry can know an instance and not give it to clients. Without it FailOver removes.
	OutOfServiceState Capability = "OutOfServiceState"
	// AnyServiceName: the registry takes every service name as it stands.
	AnyServiceName Capability = "AnyServiceName"
	// Weight, Zone, Tags and Metadata: the registry has a place for them. Without it the driver leaves them out.
	Weight   Capability = "Weight"
	Zone     Capability = "Zone"
	Tags     Capability = "Tags"
	Metadata Capability = "Metadata"
	// Durable: what the registry has acknowledged outlives its restart, leases and sessions included.
	Durable Capability = "Durable"
	// Conditional: the registry makes a change on the condition that the entry is still the one that was read. Without it
	// a driver can keep the calls of one process apart, and not those of two.
	Conditional Capability = "Conditional"
)

// What the driver is, besides a [registry.Registry]. The suite finds out by itself.
const (
	// Listing: the driver is a [registry.Lister].
	Listing Capability = "Listing"
	// Getting: the driver is a [registry.Getter].
	Getting Capability = "Getting"
	// Probing: the driver is a [registry.Prober].
	Probing Capability = "Probing"
	// Heartbeats: the driver is a [registry.Heartbeater] with an interval above zero, so its entries expire.
	Heartbeats Capability = "Heartbeats"
	// Batching: the driver is a [registry.Batcher].
	Batching Capability = "Batching"
	// AppEntries: the driver is a [registry.AppEntrySteerer].
	AppEntries Capability = "AppEntries"
	// Closing: the driver is an io.Closer.
	Closing Capability = "Closing"
)

// What the harness has. The cases of what it has not are skipped.
const (
	// Unreachable: the harness has [Harness.Unreachable].
	Unreachable Capability = "Unreachable"
	// Refusing: the harness has [Harness.Refusing].
	Refusing Capability = "Refusing"
	// WrongCredentials: the harness has [Harness.WrongCredentials].
	WrongCredentials Capability = "WrongCredentials"
	// Stalled: the harness has [Harness.Stalled].
	Stalled Capability = "Stalled"
	// Failing: the harness has [Harness.Failing].
	Failing Capability = "Failing"
	// Restart: the harness has [Harness.Restart].
	Restart Capability = "Restart"
	// ForeignEntries: the harness has [Harness.Foreign].
	ForeignEntries Capability = "ForeignEntries"
	// Apps: the harness has [Harness.App].
	Apps Capability = "Apps"
	// ShortLease: the harness has [Harness.ShortLease].
	ShortLease Capability = "ShortLease"
)

// Capabilities returns all there are.
func Capabilities() []Capability {
	return []Capability{
		OutOfServiceState, AnyServiceName, Weight, Zone, Tags, Metadata, Durable, Conditional,
		Listing, Getting, Probing, Heartbeats, Batching, AppEntries, Closing,
		Unreachable, Refusing, WrongCredentials, Stalled, Failing, Restart, ForeignEntries, Apps, ShortLease,
	}
}

// lacks reports whether the harness says so.
func (h Harness) lacks(c Capability) bool {
	_, lacks := h.Lacks[c]
	return lacks
}

// missing returns why a case that needs the capability can't run on the harness, "" where it may.
func (h Harness) missing(c Capability) string {
	if reason, lacks := h.Lacks[c]; lacks {
		return reason
	}
	if given, is := h.functions()[c]; is && !given {
		return fmt.Sprintf("the harness has no %s", c)
	}
	return ""
}

// check returns what is wrong with the harness itself.
func (h Harness) check() error {
	if h.Open == nil {
		return fmt.Errorf("harness: there is no Open")
	}
	for c, given := range h.functions() {
		if given && h.lacks(c) {
			return fmt.Errorf("harness: there is a function for %s, and in Lacks a reason why not: remove one of the two", c)
		}
	}
	return h.checkReasons()
}

// functions returns the capabilities that are functions of the harness, and whether each is given.
func (h Harness) functions() map[Capability]bool {
	return map[Capability]bool{
		Unreachable:      h.Unreachable != nil,
		Refusing:         h.Refusing != nil,
		WrongCredentials: h.WrongCredentials != nil,
		Stalled:          h.Stalled != nil,
		Failing:          h.Failing != nil,
		Restart:          h.Restart != nil,
		ForeignEntries:   h.Foreign != nil,
		Apps:             h.App != nil,
		ShortLease:       h.ShortLease != nil,
	}
}

func (h Harness) checkReasons() error {
	for c, reason := range h.Lacks {
		if !slices.Contains(Capabilities(), c) {
			return fmt.Errorf("harness: Lacks names %q, which is no capability", c)
		}
		if reason == "" {
			return fmt.Errorf("harness: Lacks gives no reason for %s", c)
		}
	}
	return nil
}

// checkDriver returns in what a driver is not what the harness says.
func (h Harness) checkDriver(d registry.Registry) error {
	if d == nil {
		return fmt.Errorf("the harness returned no driver")
	}
	is := interfacesOf(d)
	for c, has := range is {
		if has && h.lacks(c) {
			return fmt.Errorf("the harness says that the driver lacks %s, and it has it", c)
		}
	}
	if !is[Listing] && h.Truth == nil {
		return fmt.Errorf("harness: a driver that lacks %s needs Truth", Listing)
	}
	return nil
}
