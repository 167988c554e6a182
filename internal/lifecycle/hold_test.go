package lifecycle

import (
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestHoldOf(t *testing.T) {
	t.Parallel()
	templated := &Workload{TemplateAnnotations: map[string]string{AnnotationHold: "2026-11-27T12:00:00Z"}}
	now := time.Date(2026, 11, 27, 11, 0, 0, 0, time.UTC)
	type row struct {
		reason   string
		text     string
		workload *Workload
		left     time.Duration
		why      string
		refused  string
	}
	expect.Each(t, map[string]row{
		"an end and why":    {"as the plugin writes it", "2026-11-27T12:00:00Z heap dump", nil, time.Hour, "heap dump", ""},
		"an end alone":      {"by kubectl annotate", "2026-11-27T12:00:00Z", &Workload{}, time.Hour, "", ""},
		"over":              {"it comes back by itself", "2026-11-27T10:00:00Z heap dump", nil, 0, "heap dump", ""},
		"no end":            {"a pod that is held for ever is forgotten", "heap dump", nil, 0, "", "begins with no time: set it to the hold's end"},
		"a time of the day": {"nothing tells the day", "12:00", nil, 0, "", "begins with no time"},
		"of the template":   {"it would hold all pods out", "2026-11-27T12:00:00Z", templated, 0, "", "remove it from spec.template"},
		"too long":          {"it is not read whole", "2026-11-27T12:00:00Z " + strings.Repeat("x", MaxWord), nil, 0, "", "use at most"},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		annotate(pod, AnnotationHold, tc.text)
		got := HoldOf(pod, tc.workload)
		if got.Left(now) != tc.left || got.Why != tc.why || !strings.Contains(got.Refused, tc.refused) || (got.Refused == "") != (tc.refused == "") {
			t.Errorf("got %+v: %s", got, tc.reason)
		}
		if tc.refused == "" {
			expect.Equal(t, tc.text, got.String(), "it is written as it was read")
		}
	})
}
