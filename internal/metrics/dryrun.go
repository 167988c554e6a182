package metrics

import "github.com/prometheus/client_golang/prometheus"

// Operations of a dry run that are no calls to a registry.
const (
	OperationPatch = "patch"
	OperationEvent = "event"
)

// DryRunMetrics count what a dry run would have done.
type DryRunMetrics struct{ steps *prometheus.CounterVec }

// NewDryRunMetrics registers the metrics with r.
func NewDryRunMetrics(r prometheus.Registerer) (*DryRunMetrics, error) {
	m := &DryRunMetrics{steps: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_dry_run_total",
		Help: "Steps that a dry run would have taken, by registry (empty for the API server) and operation (register, failOver, " +
			"deregister, patch, event). A step counts once, until another step would take its place.",
	}, []string{"registry", "operation"})}
	return m, register(r, m.steps)
}

// Step counts what would have been done; registry is empty for what goes to the API server.
func (m *DryRunMetrics) Step(registry, operation string) {
	m.steps.WithLabelValues(registry, operation).Inc()
}
