package drain

import (
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestPolicy_At(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	untilIdle := Policy{Min: 5 * time.Second, Max: 10 * time.Minute, Until: Until{Port: 8080, Path: "/idle"}}
	answered := func(after time.Duration, a Answer) Answer {
		a.Asked = since.Add(after)
		return a
	}
	type row struct {
		reason string
		policy Policy
		after  time.Duration
		last   Answer
		by     By
		asks   bool
		again  time.Duration
	}
	expect.Each(t, map[string]row{
		"fixed, runs":     {"clients have 5 s left", Fixed(15 * time.Second), 10 * time.Second, Answer{}, "", false, 5 * time.Second},
		"fixed, over":     {"no pod is asked", Fixed(15 * time.Second), 15 * time.Second, Answer{}, ByTime, false, 0},
		"none":            {"nobody waits", Fixed(0), 0, Answer{}, ByTime, false, 0},
		"fixed, and idle": {"an answer from before the policy changed ends nothing", Fixed(15 * time.Second), 10 * time.Second, answered(9*time.Second, Answer{Idle: true}), "", false, 5 * time.Second},
		"before min":      {"clients that have not noticed still send requests, so no pod is asked", untilIdle, 4 * time.Second, Answer{}, "", false, time.Second},
		"before min, and idle": {
			"the same", untilIdle, 4 * time.Second, answered(3*time.Second, Answer{Idle: true}), "", false, time.Second,
		},
		"min has passed":   {"the pod is asked", untilIdle, 5 * time.Second, Answer{}, "", true, 595 * time.Second},
		"idle before min":  {"requests may have come since", untilIdle, 6 * time.Second, answered(4999*time.Millisecond, Answer{Idle: true}), "", true, 594 * time.Second},
		"idle":             {"no request is left", untilIdle, 6 * time.Second, answered(5*time.Second, Answer{Idle: true}), ByIdle, false, 594 * time.Second},
		"busy":             {"it is asked again", untilIdle, 6 * time.Second, answered(5*time.Second, Answer{Left: 3}), "", true, 594 * time.Second},
		"fails":            {"a pod that can't be asked counts as busy", untilIdle, time.Minute, answered(59*time.Second, Answer{Failed: "connection refused"}), "", true, 9 * time.Minute},
		"busy until max":   {"no pod stays for longer", untilIdle, 10 * time.Minute, answered(9*time.Minute, Answer{Left: 3}), ByMax, false, 0},
		"silent until max": {"the same", untilIdle, 11 * time.Minute, Answer{}, ByMax, false, 0},
		"idle at max":      {"nothing was cut", untilIdle, 10 * time.Minute, answered(9*time.Minute, Answer{Idle: true}), ByIdle, false, 0},
		"idle in the drain before": {
			"the pod was put back since, and taken out again", untilIdle, 20 * time.Second, answered(-time.Minute, Answer{Idle: true}), "", true, 580 * time.Second,
		},
	}, func(t *testing.T, tc row) {
		now := since.Add(tc.after)
		got := tc.policy.At(now, since, tc.last)
		if got.By != tc.by || got.Ask != tc.asks || got.Again(now) != tc.again {
			t.Errorf("%s: ended by %q, asks %t, again in %s; want %q, %t, %s", tc.reason, got.By, got.Ask, got.Again(now), tc.by, tc.asks, tc.again)
		}
	})
}

func TestAnswer_String(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	for want, a := range map[string]Answer{
		"has not answered yet":  {},
		"idle":                  {Asked: at, Idle: true},
		"busy":                  {Asked: at},
		"1 request left":        {Asked: at, Left: 1},
		"3 requests left":       {Asked: at, Left: 3},
		"counts as busy: no IP": {Asked: at, Failed: "no IP"},
	} {
		if got := a.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
