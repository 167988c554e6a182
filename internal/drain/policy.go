// Package drain decides how long a pod stays up after it was taken out of rotation: for a fixed time, or until it is idle. It is pure.
package drain

import (
	"maps"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Policy is how long clients have to notice, and requests to end. With Min 5s, Max 10m and Until, a pod that was out at 10:00:00 ends its
// drain when it is first found idle from 10:00:05 on, or else at 10:10:00.
type Policy struct {
	// Min is Max in a fixed drain. A refused one is negative.
	Min, Max time.Duration
	// Until is zero in a fixed drain.
	Until Until
}

// Until is how a pod shows that it is idle. The zero value shows nothing.
type Until struct {
	// Port on the pod's IP.
	Port int
	// Path answers 2xx if the pod is idle and 503 if it is busy, or with Metric has the metrics.
	Path string
	// Metric is the name of a sample. The sum of its series that have these Labels is at most Allow if the pod is idle.
	Metric string
	Labels map[string]string
	Allow  int64
}

// Fixed returns a drain that takes that long.
func Fixed(length time.Duration) Policy { return Policy{Min: length, Max: length} }

// Asks reports whether the pod is asked.
func (p Policy) Asks() bool { return p.Until.Port != 0 }

// Refused is what a configuration has whose drain can't be read.
func Refused() Policy { return Fixed(-1) }

// IsRefused reports whether it is [Refused], so that nothing is known of it.
func (p Policy) IsRefused() bool { return p.Max < 0 }

// Question is whether a pod is idle.
type Question struct {
	Pod lifecycle.PodID
	// IP is the pod's own.
	IP    string
	Until Until
	// Since is when the pod was taken out of rotation.
	Since time.Time
}

// Asks reports whether an answer to one is an answer to the other.
func (q Question) Asks(other Question) bool {
	a, b := q.Until, other.Until
	return q.Pod == other.Pod && q.IP == other.IP && a.Port == b.Port && a.Path == b.Path && a.Metric == b.Metric && a.Allow == b.Allow &&
		maps.Equal(a.Labels, b.Labels)
}
