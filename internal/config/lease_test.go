package config

import (
	"fmt"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestLease: whatever the lease, its times fit together.
func TestLease(t *testing.T) {
	t.Parallel()
	for l := DefaultLease; l <= LongestLease; l += Lease(time.Second) {
		deposed := l.Duration() - l.RenewDeadline()
		for what, holds := range map[string]bool{
			"a leader stops before another leads":                         l.RenewDeadline() < l.Duration(),
			"client-go takes them":                                        l.RenewDeadline() > l.RetryPeriod()*12/10,
			"a leader renews several times before it gives up":            l.RenewDeadline() >= 5*l.RetryPeriod(),
			"a manager that waits looks while another leaves the lease":   l.YieldFor() > l.RetryPeriod()*22/10,
			"a leader that renews is permitted its longest call":          3*l.RetryPeriod()+2*l.TimeoutLimit() <= l.Duration(),
			"no call outlives the lease of a leader that can't renew":     l.TimeoutLimit() < deposed,
			"an entry outlasts the lease and the look of the next leader": l.Takeover() > l.Duration()+l.RetryPeriod()*22/10,
		} {
			if !holds {
				t.Errorf("lease of %s: not so: %s", l.Duration(), what)
			}
		}
	}
	got := fmt.Sprint(DefaultLease.RenewDeadline(), DefaultLease.RetryPeriod(), DefaultLease.YieldFor(), DefaultLease.TimeoutLimit(), DefaultLease.Takeover())
	expect.Equal(t, "8s 800ms 5s 6.3s 20s", got, "the times of the default, which docs/leadership.md has")
}
