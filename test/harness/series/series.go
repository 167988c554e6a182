// Package series reads metrics as a scrape shows them.
package series

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// Of returns every series with its value, sorted by name; of a histogram only the count.
func Of(t testing.TB, gatherer prometheus.Gatherer) []string {
	t.Helper()
	answer := httptest.NewRecorder()
	scrape := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}).ServeHTTP(answer, scrape)
	var all []string
	for line := range strings.Lines(answer.Body.String()) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") && !strings.Contains(line, "_sum{") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// Expect expects exactly these series, sorted.
func Expect(t testing.TB, gatherer prometheus.Gatherer, why string, want ...string) {
	t.Helper()
	expect.Equal(t, want, Of(t, gatherer), "%s: series", why)
}
