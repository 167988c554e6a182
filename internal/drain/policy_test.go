package drain

import (
	"testing"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestQuestion_Asks: an answer counts for a question that differs in nothing but since when the pod is out.
func TestQuestion_Asks(t *testing.T) {
	t.Parallel()
	question := func(change func(*Question)) Question {
		q := Question{
			Pod: lifecycle.PodID{UID: "1"}, IP: "10.0.0.1",
			Until: Until{Port: 8080, Path: "/metrics", Metric: "in_flight", Labels: map[string]string{"job": "web"}, Allow: 1},
		}
		change(&q)
		return q
	}
	for of, tc := range map[string]struct {
		change func(*Question)
		asks   bool
	}{
		"nothing":    {func(*Question) {}, true},
		"its drain":  {func(q *Question) { q.Since = q.Since.AddDate(1, 0, 0) }, true},
		"the pod":    {func(q *Question) { q.Pod.UID = "2" }, false},
		"its IP":     {func(q *Question) { q.IP = "10.0.0.2" }, false},
		"the port":   {func(q *Question) { q.Until.Port = 9090 }, false},
		"the path":   {func(q *Question) { q.Until.Path = "/idle" }, false},
		"the metric": {func(q *Question) { q.Until.Metric = "busy" }, false},
		"a label":    {func(q *Question) { q.Until.Labels = map[string]string{"job": "api"} }, false},
		"allow":      {func(q *Question) { q.Until.Allow = 2 }, false},
	} {
		expect.Equal(t, tc.asks, question(tc.change).Asks(question(func(*Question) {})), "a question that differs in %s asks the same", of)
	}
}
