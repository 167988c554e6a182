// Package metrics holds Rollcall's metrics.
package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegistryMetrics are the metrics of calls to registries.
type RegistryMetrics struct {
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

// NewRegistryMetrics registers the metrics with r.
func NewRegistryMetrics(r prometheus.Registerer) (*RegistryMetrics, error) {
	m := &RegistryMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_registry_request_duration_seconds",
			Help: "How long calls to a registry took, by registry, driver, operation (register, failOver, deregister, list, " +
				"probe, heartbeat, get) and outcome (ok, retryable, terminal, timeout, notRegistered, foreignEntry).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"registry", "driver", "operation", "outcome"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_registry_requests_in_flight",
			Help: "Calls to a registry that are in flight, by registry and driver.",
		}, []string{"registry", "driver"}),
	}
	return m, register(r, m.duration, m.inFlight)
}

// Began counts a call as under way, and returns what takes its outcome when it has ended. A registry is known by its name in
// the configuration and its driver.
func (m *RegistryMetrics) Began(name, driver, operation string) (ended func(outcome string)) {
	inFlight := m.inFlight.WithLabelValues(name, driver)
	inFlight.Inc()
	start := time.Now()
	return func(outcome string) {
		inFlight.Dec()
		m.duration.WithLabelValues(name, driver, operation, outcome).Observe(time.Since(start).Seconds())
	}
}

// Forget removes what is shown of a registry by its name and driver. No call to it may be under way any more, or begin.
func (m *RegistryMetrics) Forget(name, driver string) {
	labels := prometheus.Labels{"registry": name, "driver": driver}
	m.duration.DeletePartialMatch(labels)
	m.inFlight.DeletePartialMatch(labels)
}

// ConfigMetrics are the metrics of configuration reloads.
type ConfigMetrics struct {
	reloads *prometheus.CounterVec
	last    prometheus.Gauge
}

// NewConfigMetrics registers the metrics with r. The configuration at start counts as a success, not as a reload.
func NewConfigMetrics(r prometheus.Registerer) (*ConfigMetrics, error) {
	m := &ConfigMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_config_reloads_total",
			Help: "Changes of the configuration file, by outcome (applied, refused).",
		}, []string{"outcome"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_config_last_reload_successful",
			Help: "1 if the manager uses the configuration file as it is now, 0 if it refused the file.",
		}),
	}
	m.last.Set(1)
	for _, outcome := range []string{"applied", "refused"} {
		m.reloads.WithLabelValues(outcome)
	}
	return m, register(r, m.reloads, m.last)
}

// Applied counts a configuration that was put in force.
func (m *ConfigMetrics) Applied() {
	m.reloads.WithLabelValues("applied").Inc()
	m.last.Set(1)
}

// Refused counts a configuration that was refused.
func (m *ConfigMetrics) Refused() {
	m.reloads.WithLabelValues("refused").Inc()
	m.last.Set(0)
}

// Wait is one pod that waits for Rollcall: at which hook, why, and since when.
type Wait struct {
	Hook   string
	Reason string
	Since  time.Time
}

// Release counts how often a hook was released although a registry had not acknowledged, and by what.
type Release struct {
	Hook  string
	By    string
	Count int
}

// Pods is what the metrics of pods and workloads are read from, at each scrape and concurrently.
type Pods struct {
	// Waits returns the pods that wait now.
	Waits func() []Wait
	// UnmatchedWorkloads returns how many workloads have hooks of which none is ours.
	UnmatchedWorkloads func() int
	// Releases returns what was released without an acknowledgement since the start.
	Releases func() []Release
	// Now is the clock that Wait.Since was taken from.
	Now func() time.Time
}

// RegisterPods registers with r the metrics that are read from p.
func RegisterPods(r prometheus.Registerer, p Pods) error {
	return register(r, &podCollector{
		Pods: p,
		waiting: prometheus.NewDesc("rollcall_waiting_pods",
			"Pods that wait for Rollcall, by hook and reason.", []string{"hook", "reason"}, nil),
		oldest: prometheus.NewDesc("rollcall_oldest_wait_seconds",
			"How long the oldest waiting pod has waited, by hook and reason.", []string{"hook", "reason"}, nil),
		unmatched: prometheus.NewDesc("rollcall_unmatched_workloads",
			"Workloads with lifecycle hooks whose handlers all fail to match hooks.owned.", nil, nil),
		releases: prometheus.NewDesc("rollcall_unacknowledged_releases_total",
			"Hooks that were released without a registry's acknowledgement, by hook and cause (failurePolicy, skip).",
			[]string{"hook", "by"}, nil),
	})
}

// podCollector reads at each scrape, so that a pod which waits no longer leaves no series behind.
type podCollector struct {
	Pods
	waiting, oldest, unmatched, releases *prometheus.Desc
}

func (c *podCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.waiting
	out <- c.oldest
	out <- c.unmatched
	out <- c.releases
}

func (c *podCollector) Collect(out chan<- prometheus.Metric) {
	type key struct{ hook, reason string }
	counts := map[key]int{}
	since := map[key]time.Time{}
	for _, wait := range c.Waits() {
		k := key{wait.Hook, wait.Reason}
		if first, known := since[k]; !known || wait.Since.Before(first) {
			since[k] = wait.Since
		}
		counts[k]++
	}
	now := c.Now()
	for k, count := range counts {
		out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(count), k.hook, k.reason)
		out <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue,
			max(now.Sub(since[k]), 0).Seconds(), k.hook, k.reason)
	}
	out <- prometheus.MustNewConstMetric(c.unmatched, prometheus.GaugeValue, float64(c.UnmatchedWorkloads()))
	for _, r := range c.Releases() {
		out <- prometheus.MustNewConstMetric(c.releases, prometheus.CounterValue, float64(r.Count), r.Hook, r.By)
	}
}

func register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}
