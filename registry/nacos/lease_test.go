package nacos

import (
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestLeaseOutlastsAChangeOfLeader: Nacos' own default, 15 s, is less than that takes.
func TestLeaseOutlastsAChangeOfLeader(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration][3]string{
		0: {"5000", "45000", "90000"}, time.Second: {"1000", "33000", "66000"}, 45 * time.Second: {"45000", "165000", "330000"},
	} {
		got := Options{respite: 30 * time.Second, Ephemeral: true, HeartbeatInterval: driverkit.Duration(interval)}.lease()
		expect.Equal(t, map[string]string{metaInterval: want[0], metaUnhealthy: want[1], metaRemoved: want[2]}, got, "the lease at an interval of %s", interval)
	}
}
