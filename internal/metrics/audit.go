package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// NewLostLines registers with r the counter of the audit log's lines that could not be written.
func NewLostLines(r prometheus.Registerer) prometheus.Counter {
	return promauto.With(r).NewCounter(prometheus.CounterOpts{
		Name: "rollcall_audit_lost_lines_total",
		Help: "Lines of the audit log that could not be written, so that receipts have a gap. No pod waits for them.",
	})
}
