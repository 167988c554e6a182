package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Findings of a resync, as the metrics name them.
const (
	FoundMissing   = "missing"
	FoundDifferent = "different"
	FoundReaped    = "reaped"
)

// ResyncMetrics are the metrics of comparing registries with the cluster.
type ResyncMetrics struct {
	interval   prometheus.Gauge
	duration   *prometheus.HistogramVec
	last       *prometheus.GaugeVec
	found      *prometheus.CounterVec
	blocked    *prometheus.GaugeVec
	unfinished *prometheus.GaugeVec
	unlisted   *prometheus.GaugeVec
	listable   *prometheus.GaugeVec
}

// NewResyncMetrics registers the metrics with r.
func NewResyncMetrics(r prometheus.Registerer) *ResyncMetrics {
	byRegistry := []string{"registry"}
	factory := promauto.With(r)
	return &ResyncMetrics{
		interval: factory.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_resync_interval_seconds",
			Help: "How long after one comparison of a registry with the cluster the next one begins, at the latest: resync.interval, or 60 if it " +
				"is not set and the registry lists up to 10,000 entries.",
		}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rollcall_resync_duration_seconds",
			Help:    "How long comparing a registry with the cluster took, by registry and outcome (ok, failed).",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60},
		}, []string{"registry", "outcome"}),
		last: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_resync_last_success_timestamp_seconds",
			Help: "When resync last compared a registry with the cluster, by registry. Before the first comparison: when this manager " +
				"began to try. Only the leader sets it.",
		}, byRegistry),
		found: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_resync_entries_total",
			Help: "Entries that resync handled, by registry and finding: it puts missing entries back, corrects different ones, and " +
				"removes (reaped) those without a live pod.",
		}, []string{"registry", "finding"}),
		blocked: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_resync_blocked_removals",
			Help: "Entries without a live pod that resync leaves until a person approves, because they may be another cluster's, " +
				"by registry.",
		}, byRegistry),
		unfinished: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_resync_unfinished_removals",
			Help: "Entries without a live pod that the last run failed to remove, or left for the next run, since others failed or many " +
				"go, by registry.",
		}, byRegistry),
		unlisted: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_resync_unlisted_places",
			Help: "Places that the last run could not list, so that it compared none of their entries, by registry.",
		}, byRegistry),
		listable: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_resync_listable",
			Help: "1 if resync can compare a registry with the cluster, 0 if its driver can't list, by registry.",
		}, byRegistry),
	}
}

// Interval is how often registries are compared.
func (m *ResyncMetrics) Interval(d time.Duration) { m.interval.Set(d.Seconds()) }

// Began notes whether a registry can be compared at all, and that it will be from this time on. The time is shown until the
// first success, so that an alert on the age of the last one finds a registry that never had one.
func (m *ResyncMetrics) Began(registry string, at time.Time, listable bool) {
	if !listable {
		m.listable.WithLabelValues(registry).Set(0)
		return
	}
	m.last.WithLabelValues(registry).Set(seconds(at))
	m.listable.WithLabelValues(registry).Set(1)
	m.blocked.WithLabelValues(registry)
	m.unfinished.WithLabelValues(registry)
	m.unlisted.WithLabelValues(registry)
	for _, finding := range []string{FoundMissing, FoundDifferent, FoundReaped} {
		m.found.WithLabelValues(registry, finding)
	}
}

// Forget removes what is shown of a registry that is no more.
func (m *ResyncMetrics) Forget(registry string) {
	label := prometheus.Labels{"registry": registry}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.duration, m.last, m.found, m.blocked, m.unfinished, m.unlisted, m.listable,
	} {
		v.DeletePartialMatch(label)
	}
}

// Ran counts a run that began and ended at these times.
func (m *ResyncMetrics) Ran(registry string, began, ended time.Time, failed bool) {
	outcome := "failed"
	if !failed {
		outcome = "ok"
		m.last.WithLabelValues(registry).Set(seconds(ended))
	}
	m.duration.WithLabelValues(registry, outcome).Observe(ended.Sub(began).Seconds())
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// Found counts entries.
func (m *ResyncMetrics) Found(registry, finding string, n int) {
	m.found.WithLabelValues(registry, finding).Add(float64(n))
}

// Blocked is how many entries are not removed because they are too many; 0 if nothing is blocked.
func (m *ResyncMetrics) Blocked(registry string, n int) {
	m.blocked.WithLabelValues(registry).Set(float64(n))
}

// Unfinished is how many removals of the last run failed or were not begun.
func (m *ResyncMetrics) Unfinished(registry string, n int) {
	m.unfinished.WithLabelValues(registry).Set(float64(n))
}

// Unlisted is how many places the last run could not list.
func (m *ResyncMetrics) Unlisted(registry string, n int) {
	m.unlisted.WithLabelValues(registry).Set(float64(n))
}
