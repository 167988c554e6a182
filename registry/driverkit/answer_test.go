package driverkit

import (
	"net/http"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, tc := range map[string]struct {
		reason string
		after  time.Duration
		said   bool
	}{
		"7":          {"seconds", 7 * time.Second, true},
		"0":          {"at once is an answer too", 0, true},
		"4000000000": {"registry.RetryAfter bounds it", 4_000_000_000 * time.Second, true},
		now.Add(time.Minute).Format(http.TimeFormat):  {"an HTTP date", time.Minute, true},
		now.Add(-time.Minute).Format(http.TimeFormat): {"a date that has passed says nothing: a clock is wrong", 0, false},
		now.Format(http.TimeFormat):                   {"so does the very moment", 0, false},
		"":                                            {"no header", 0, false},
		"-1":                                          {"no number of seconds", 0, false},
		"soon":                                        {"neither of the two", 0, false},
	} {
		if after, said := parseRetryAfter(value, now); after != tc.after || said != tc.said {
			t.Errorf("%q: got %s, %t, want %s, %t: %s", value, after, said, tc.after, tc.said, tc.reason)
		}
	}
}
