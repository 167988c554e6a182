package registrytest

import (
	"fmt"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// Capability is something that a registry can have or lack. Its value is its name.
type Capability string

// The capabilities.
const (
	// OutOfServiceState: the registry can know an instance and not give it to clients. Without it, FailOver removes the entry.
	OutOfServiceState Capability = "OutOfServiceState"
	// AnyServiceName: the registry takes every service name as it is.
	AnyServiceName Capability = "AnyServiceName"
	// MixedCaseName: the registry takes service names with upper-case letters, dots and underscores, unlike DNS.
	MixedCaseName Capability = "MixedCaseName"
	// Weight, Zone, Tags and Metadata: the registry has a place for them. Without it the driver leaves them out.
	Weight   Capability = "Weight"
	Zone     Capability = "Zone"
	Tags     Capability = "Tags"
	Metadata Capability = "Metadata"
	// Durable: what the registry has acknowledged outlives its restart, leases and sessions included.
	Durable Capability = "Durable"
	// Conditional: the registry makes a change on the condition that the entry is still the one that was read. Without it,
	// a driver can keep the calls of one process apart, but not those of two.
	Conditional Capability = "Conditional"
	// EachApart: an instance can be in rotation while another one of its pod is not. Without it, all of a pod's instances are in
	// rotation, or none.
	EachApart Capability = "EachApart"
)

func capabilities() []Capability {
	return []Capability{
		OutOfServiceState, AnyServiceName, MixedCaseName, Weight, Zone, Tags, Metadata, Durable, Conditional, EachApart,
	}
}

// What the driver is in addition to a [registry.Registry]: the names of the interfaces. A Heartbeater has an interval above
// zero, so its entries expire.
const (
	isLister      Capability = "Lister"
	isGetter      Capability = "Getter"
	isProber      Capability = "Prober"
	isHeartbeater Capability = "Heartbeater"
	isBatcher     Capability = "Batcher"
	isSteerer     Capability = "AppEntrySteerer"
	callsPods     Capability = "CallsPods"
	isCloser      Capability = "Closer"
)

// What the harness has: the names of its functions.
const (
	hasUnreachable      Capability = "Unreachable"
	hasRefusing         Capability = "Refusing"
	hasLoginPage        Capability = "LoginPage"
	hasWrongCredentials Capability = "WrongCredentials"
	hasStalled          Capability = "Stalled"
	hasLosingAnswers    Capability = "LosingAnswers"
	hasMetered          Capability = "Metered"
	hasFailing          Capability = "Failing"
	hasRestart          Capability = "Restart"
	hasForeign          Capability = "Foreign"
	hasCopy             Capability = "Copy"
	hasApp              Capability = "App"
	hasShortLease       Capability = "ShortLease"
	hasPlaced           Capability = "Placed"
	hasRefusedPlace     Capability = "RefusedPlace"
)

// lacks reports whether the harness lists the capability in Lacks.
func (h Harness) lacks(c Capability) bool {
	_, lacks := h.Lacks[c]
	return lacks
}

// missing returns why a case that needs the capability can't run on the harness, or "" if it can.
func (h Harness) missing(c Capability) string {
	given, is := map[Capability]bool{
		hasUnreachable: h.Unreachable != nil, hasRefusing: h.Refusing != nil, hasLoginPage: h.LoginPage != nil,
		hasWrongCredentials: h.WrongCredentials != nil,
		hasMetered:          h.Metered != nil,
		hasStalled:          h.Stalled != nil, hasLosingAnswers: h.LosingAnswers != nil, hasFailing: h.Failing != nil, hasRestart: h.Restart != nil,
		hasForeign: h.Foreign != nil, hasCopy: h.Copy != nil, hasApp: h.App != nil, hasShortLease: h.ShortLease != nil,
		hasPlaced: h.Placed != nil, hasRefusedPlace: h.RefusedPlace != nil,
	}[c]
	if is && !given {
		return "the harness has no such function"
	}
	return h.Lacks[c]
}

// check returns what is wrong with the harness itself.
func (h Harness) check() error {
	if h.Open == nil {
		return fmt.Errorf("harness: Open is nil: set it to a function that makes a driver")
	}
	for c, reason := range h.Lacks {
		if !slices.Contains(capabilities(), c) {
			return fmt.Errorf("harness: Lacks has %q, which is not a capability: use one of %q", c, capabilities())
		}
		if reason == "" {
			return fmt.Errorf("harness: Lacks has no reason for %s: set one", c)
		}
	}
	return nil
}

// checkDriver returns an error if the driver does not fit the harness.
func (h Harness) checkDriver(d registry.Registry) error {
	if d == nil {
		return fmt.Errorf("the harness returned no driver")
	}
	if _, lists := d.(registry.Lister); !lists && !registry.TraitsOf(d).CallsPods && h.Truth == nil {
		return fmt.Errorf("harness: the driver is not a Lister: set Truth")
	}
	return nil
}
