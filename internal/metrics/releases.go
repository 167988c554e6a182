package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// What releases a hook without an acknowledgement.
const (
	ByFailurePolicy = "failurePolicy"
	BySkip          = "skip"
)

// ReleaseMetrics say how long OpenKruise waited for the hooks that were released, and count those that were released although
// a registry had not acknowledged.
type ReleaseMetrics struct {
	releases *prometheus.CounterVec
	waits    *prometheus.HistogramVec
}

// NewReleaseMetrics registers the metrics with r.
func NewReleaseMetrics(r prometheus.Registerer) *ReleaseMetrics {
	m := &ReleaseMetrics{
		releases: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_unacknowledged_releases_total",
			Help: "Hooks that were released without a registry's acknowledgement, by hook and cause (failurePolicy, skip).",
		}, []string{"hook", "by"}),
		waits: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_hook_wait_seconds",
			Help: "How long OpenKruise waited at a hook until Rollcall released it, by hook: the pod's readiness, the registry and " +
				"the drain. OpenKruise's timestamp has whole seconds.",
			Buckets: []float64{1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1800},
		}, []string{"hook"}),
	}
	for _, hook := range []string{"preDelete", "inPlaceUpdate"} {
		m.releases.WithLabelValues(hook, ByFailurePolicy)
		m.releases.WithLabelValues(hook, BySkip)
	}
	return m
}

// Count counts a release of the hook.
func (m *ReleaseMetrics) Count(hook, by string) { m.releases.WithLabelValues(hook, by).Inc() }

// Waited notes how long OpenKruise waited for the hook that was just released.
func (m *ReleaseMetrics) Waited(hook string, wait time.Duration) {
	m.waits.WithLabelValues(hook).Observe(max(wait, 0).Seconds())
}
