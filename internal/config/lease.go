package config

import (
	"fmt"
	"time"
)

// Lease is how long the leader's lease lasts without a renewal. All other times of the election follow from it, so that they fit together:
//
//	lease   deadline   retry   yields   timeout limit   takeover
//	15s     8s         800ms   5s       6.3s            20s
//	30s     16s        1.6s    10s      12.6s           40s
type Lease time.Duration

// DefaultLease is for a configuration without leaseDuration. A longer lease than LongestLease would outlast the entries in most registries.
const (
	DefaultLease = Lease(15 * time.Second)
	LongestLease = Lease(time.Minute)
)

// Duration is the lease itself: another manager leads no sooner after the last renewal.
func (l Lease) Duration() time.Duration { return time.Duration(l) }

// RenewDeadline is when a leader that can't renew stops.
func (l Lease) RenewDeadline() time.Duration { return l.Duration() * 8 / 15 }

// RetryPeriod is between two renewals. A manager that waits reads the lease after 1 to 2.2 times as long, with client-go's jitter.
func (l Lease) RetryPeriod() time.Duration { return l.Duration() * 8 / 150 }

// YieldFor is for how long a manager that is not ready leaves the lease to others: longer than one takes to look.
func (l Lease) YieldFor() time.Duration { return l.Duration() / 3 }

// TimeoutLimit is what a registry's timeout must stay below: half of what is left of the lease after three tries to renew it. A call
// needs twice its timeout to be left, since one that timed out may still be carried out. Any timeout is safe, but a leader whose
// last renewal is as old as it ordinarily gets must be permitted its calls.
func (l Lease) TimeoutLimit() time.Duration { return (l.Duration() - 3*l.RetryPeriod()) / 2 }

// Takeover bounds the time without a leader when one has died, in whole seconds: the lease, the look of another manager, and what that
// has to catch up.
func (l Lease) Takeover() time.Duration {
	return (l.Duration()*4/3 + time.Second - 1).Truncate(time.Second)
}

func (o *object) lease() Lease {
	l := Lease(o.duration("leaseDuration", DefaultLease.Duration(), 0))
	if l < DefaultLease || l > LongestLease || l.Duration()%time.Second != 0 {
		o.invalid("leaseDuration", l.Duration().String(),
			fmt.Sprintf("set whole seconds from %s to %s", DefaultLease.Duration(), LongestLease.Duration()))
		return DefaultLease
	}
	return l
}
