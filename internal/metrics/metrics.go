// Package metrics holds Rollcall's metrics. Each function registers its metrics with a registry that has none of the same
// name; else it panics.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// RegistryMetrics are the metrics of calls to registries.
type RegistryMetrics struct{ duration *prometheus.HistogramVec }

// NewRegistryMetrics registers the metrics with r.
func NewRegistryMetrics(r prometheus.Registerer) *RegistryMetrics {
	return &RegistryMetrics{
		duration: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_registry_request_duration_seconds",
			Help: "How long calls to a registry took, by registry, driver, operation (register, takeOut, deregister, list, " +
				"probe, heartbeat, get) and outcome (ok, retryable, terminal, timeout, notRegistered, notYet, foreignEntry).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"registry", "driver", "operation", "outcome"}),
	}
}

// Called notes a call that has ended. A registry is known by its name in the configuration and its driver.
func (m *RegistryMetrics) Called(name, driver, operation, outcome string, took time.Duration) {
	m.duration.WithLabelValues(name, driver, operation, outcome).Observe(took.Seconds())
}

// Forget removes what is shown of a registry by its name and driver. No call to it may be under way any more, or begin.
func (m *RegistryMetrics) Forget(name, driver string) {
	m.duration.DeletePartialMatch(prometheus.Labels{"registry": name, "driver": driver})
}

// ConfigMetrics are the metrics of configuration reloads.
type ConfigMetrics struct {
	reloads *prometheus.CounterVec
	last    prometheus.Gauge
}

// NewConfigMetrics registers the metrics with r. The configuration at start counts as a success, not as a reload.
func NewConfigMetrics(r prometheus.Registerer) *ConfigMetrics {
	m := &ConfigMetrics{
		reloads: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_config_reloads_total",
			Help: "Changes of the configuration file, by outcome (applied, refused).",
		}, []string{"outcome"}),
		last: promauto.With(r).NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_config_last_reload_successful",
			Help: "1 if the manager uses the configuration file as it is now, 0 if it refused the file.",
		}),
	}
	m.last.Set(1)
	for _, outcome := range []string{"applied", "refused"} {
		m.reloads.WithLabelValues(outcome)
	}
	return m
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

// Operations of a dry run that do not call a registry.
const (
	OperationPatch = "patch"
	OperationEvent = "event"
)

// DryRunMetrics count what a dry run would have done.
type DryRunMetrics struct{ steps *prometheus.CounterVec }

// NewDryRunMetrics registers the metrics with r.
func NewDryRunMetrics(r prometheus.Registerer) *DryRunMetrics {
	return &DryRunMetrics{steps: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_dry_run_total",
		Help: "Steps that a dry run would have taken, by registry (empty for the API server) and operation (register, takeOut, " +
			"deregister, patch, event). A step counts once, until another step would take its place.",
	}, []string{"registry", "operation"})}
}

// Step counts what would have been done; registry is empty for what goes to the API server.
func (m *DryRunMetrics) Step(registry, operation string) {
	m.steps.WithLabelValues(registry, operation).Inc()
}

// What releases a hook: what must be so, or what excuses that it is not.
const (
	ByAcknowledgement = "acknowledgement"
	ByFailurePolicy   = "failurePolicy"
	BySkip            = "skip"
)

// ReleaseMetrics measure how long OpenKruise waited for the hooks that were released, and count them by what released them, and what
// ended the drains before.
type ReleaseMetrics struct {
	releases *prometheus.CounterVec
	drains   *prometheus.CounterVec
	waits    *prometheus.HistogramVec
}

// NewReleaseMetrics registers the metrics with r.
func NewReleaseMetrics(r prometheus.Registerer) *ReleaseMetrics {
	m := &ReleaseMetrics{
		releases: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_releases_total",
			Help: "Hooks that were released, by hook and cause: every registry had acknowledged, or proceedAfter had passed, or a person " +
				"skipped it (acknowledgement, failurePolicy, skip).",
		}, []string{"hook", "by"}),
		drains: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_drains_total",
			Help: "Drains after which a hook was released, by what ended the drain: the pod was idle, it was not idle by max, or the " +
				"drain has a fixed length (idle, max, fixed).",
		}, []string{"by"}),
		waits: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_hook_wait_seconds",
			Help: "How long OpenKruise waited at a hook until Rollcall released it, by hook: the pod's readiness, the registry and " +
				"the drain. OpenKruise's timestamp has whole seconds.",
			Buckets: []float64{1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1800},
		}, []string{"hook"}),
	}
	for _, hook := range []string{"preDelete", "inPlaceUpdate"} {
		m.releases.WithLabelValues(hook, ByAcknowledgement)
		m.releases.WithLabelValues(hook, ByFailurePolicy)
		m.releases.WithLabelValues(hook, BySkip)
	}
	m.releases.WithLabelValues("preNormal", ByAcknowledgement)
	for _, by := range []string{"idle", "max", "fixed"} {
		m.drains.WithLabelValues(by)
	}
	return m
}

// Count counts a release of the hook.
func (m *ReleaseMetrics) Count(hook, by string) { m.releases.WithLabelValues(hook, by).Inc() }

// Drained counts a drain that has ended, by what ended it.
func (m *ReleaseMetrics) Drained(by string) { m.drains.WithLabelValues(by).Inc() }

// Waited notes how long OpenKruise waited for the hook that was just released.
func (m *ReleaseMetrics) Waited(hook string, wait time.Duration) {
	m.waits.WithLabelValues(hook).Observe(max(wait, 0).Seconds())
}
