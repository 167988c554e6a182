package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

// AuditMetrics count the lines of the audit log that could not be written.
type AuditMetrics struct {
	lost prometheus.Counter
	tell *rate.Limiter
}

// NewAuditMetrics registers the metrics with r.
func NewAuditMetrics(r prometheus.Registerer) *AuditMetrics {
	return &AuditMetrics{
		lost: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "rollcall_audit_lost_lines_total",
			Help: "Lines of the audit log that could not be written, so that receipts have a gap. No pod waits for them.",
		}),
		tell: rate.NewLimiter(rate.Every(time.Minute), 1),
	}
}

// Lost counts lost lines. It reports whether a person should read of it in the log, once a minute.
func (m *AuditMetrics) Lost(lines int) (tell bool) {
	m.lost.Add(float64(lines))
	return m.tell.Allow()
}
