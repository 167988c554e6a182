package nacos

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeaseOutlastsAChangeOfLeader: Nacos' own default, 15 s, is less than that takes.
func TestLeaseOutlastsAChangeOfLeader(t *testing.T) {
	t.Parallel()
	for interval, want := range map[string][3]string{
		"": {"5000", "45000", "90000"}, "1s": {"1000", "33000", "66000"}, "60m": {"3600000", "10830000", "21660000"},
	} {
		got := Options{Ephemeral: true, HeartbeatInterval: interval}.lease()
		if diff := cmp.Diff(map[string]string{metaInterval: want[0], metaUnhealthy: want[1], metaRemoved: want[2]}, got); diff != "" {
			t.Errorf("the lease at an interval of %q, -want +got:\n%s", interval, diff)
		}
	}
}
