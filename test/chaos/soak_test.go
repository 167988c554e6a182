package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHeld(t *testing.T) {
	t.Parallel()
	calm := reading{live: 30 * mebibyte, goroutines: 200, started: 1}
	for name, tc := range map[string]struct {
		reason string
		last   reading
		calms  int
		want   string
	}{
		"same":       {"nothing grows", calm, 3, ""},
		"a little":   {"caches fill up", reading{live: 38 * mebibyte, goroutines: 229, started: 1}, 3, ""},
		"heap":       {"a quarter and a mebibyte more is a leak", reading{live: 39 * mebibyte, goroutines: 200, started: 1}, 3, "39.0 in the last"},
		"goroutines": {"a tenth and ten more is a leak", reading{live: 30 * mebibyte, goroutines: 231, started: 1}, 3, "231 in the last"},
		"restart":    {"another process can't be compared", reading{live: 30 * mebibyte, goroutines: 200, started: 2}, 3, "started again"},
		"short":      {"two calms tell nothing", calm, 2, "too few"},
		"none":       {"nothing passes that was not looked at", calm, 0, "no manager was asked"},
	} {
		h := held{}
		if tc.calms > 0 {
			h["m1"] = append(slices.Repeat([]reading{calm}, tc.calms-1), tc.last)
		}
		if got := strings.Join(h.problems(), "; "); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestReadingOf(t *testing.T) {
	t.Parallel()
	page := `# HELP go_goroutines Number of goroutines that currently exist.
go_goroutines 200
go_gc_heap_live_bytes 3.1e+07
process_start_time_seconds 1.7e+09
`
	want := reading{live: 3.1e7, goroutines: 200, started: 1.7e9}
	if got, err := readingOf(page); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", strings.Replace(page, "go_goroutines 200", "", 1), strings.Replace(page, "200", "many", 1)} {
		if _, err := readingOf(bad); err == nil {
			t.Errorf("a page is taken that lacks a number:\n%s", bad)
		}
	}
}

func TestSoakPlanHasNoFault(t *testing.T) {
	t.Parallel()
	actions := soakPlan(1, 7, soakStorms*10*time.Minute).round(0)
	if len(actions) < 300 {
		t.Errorf("%d actions in ten minutes", len(actions))
	}
	for _, a := range actions {
		if a.kind.isKill() || a.kind.isFault() {
			t.Errorf("there is %q", a.kind)
		}
	}
}
