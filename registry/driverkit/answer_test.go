package driverkit

import (
	"net/http"
	"testing"
	"time"
)

// TestDatesAreOfTheServersClock, which may be hours away from this one's.
func TestDatesAreOfTheServersClock(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		date   func(now time.Time) string
		after  time.Duration // of a Retry-After that is an hour and a minute from now, to the minute
	}{
		"the same clock":  {"the plain case", func(now time.Time) string { return now.Format(http.TimeFormat) }, 61 * time.Minute},
		"an hour ahead":   {"it says a minute", func(now time.Time) string { return now.Add(time.Hour).Format(http.TimeFormat) }, time.Minute},
		"no date":         {"there is no other clock than this one", func(time.Time) string { return "" }, 61 * time.Minute},
		"no date of HTTP": {"there is no other clock than this one", func(time.Time) string { return "yesterday" }, 61 * time.Minute},
	} {
		now := time.Now().UTC()
		a := &Answer{Status: http.StatusServiceUnavailable, Header: http.Header{
			"Date": {tc.date(now)}, "Retry-After": {now.Add(61 * time.Minute).Format(http.TimeFormat)},
		}}
		if after, said := a.Refusal("").RetryAfter(); !said || after.Round(time.Minute) != tc.after {
			t.Errorf("%s: got %s, %t, want %s\nreason: %s", name, after, said, tc.after, tc.reason)
		}
	}
}

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
