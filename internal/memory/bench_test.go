package memory

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkClaimEvent is for one of many pods of a workload that all wait for long, as behind a registry that is down. It takes as long
// however many they are: each of them asks at each visit.
func BenchmarkClaimEvent(b *testing.B) {
	for _, pods := range []int{1_000, 10_000, 50_000} {
		b.Run(strconv.Itoa(pods), func(b *testing.B) {
			n, now, all := New(), time.Unix(0, 0), make([]*Pod, pods)
			for i := range all {
				all[i] = noteOf(n, types.UID(strconv.Itoa(i)))
			}
			n.ClaimEvent(all[0], "web", now)
			for i := 0; b.Loop(); i++ {
				if n.ClaimEvent(all[i%pods], "web", now) {
					b.Fatal("a second pod has the Event")
				}
			}
		})
	}
}
