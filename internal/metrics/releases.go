package metrics

import "github.com/prometheus/client_golang/prometheus"

// What releases a hook without an acknowledgement.
const (
	ByFailurePolicy = "failurePolicy"
	BySkip          = "skip"
)

// ReleaseMetrics count the hooks that were released although a registry had not acknowledged.
type ReleaseMetrics struct{ releases *prometheus.CounterVec }

// NewReleaseMetrics registers the metrics with r.
func NewReleaseMetrics(r prometheus.Registerer) *ReleaseMetrics {
	m := &ReleaseMetrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_unacknowledged_releases_total",
		Help: "Hooks that were released without a registry's acknowledgement, by hook and cause (failurePolicy, skip).",
	}, []string{"hook", "by"})}
	for _, hook := range []string{"preDelete", "inPlaceUpdate"} {
		m.releases.WithLabelValues(hook, ByFailurePolicy)
		m.releases.WithLabelValues(hook, BySkip)
	}
	r.MustRegister(m.releases)
	return m
}

// Count counts a release of the hook.
func (m *ReleaseMetrics) Count(hook, by string) { m.releases.WithLabelValues(hook, by).Inc() }
