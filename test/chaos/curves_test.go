package main

import (
	"strings"
	"testing"
	"time"
)

// soaked makes the samples of a soak in which a manager's numbers follow from the time.
func soaked(n int, of func(i int) reading) []sample {
	var all []sample
	for i := range n {
		all = append(all, sample{at: time.Duration(i) * sampleEvery, of: map[string]reading{"m1": of(i)}})
	}
	return all
}

func TestCurves(t *testing.T) {
	t.Parallel()
	flat := func(int) reading { return reading{live: 30 * mebibyte, goroutines: 200, started: 1} }
	for _, tc := range []struct {
		name, reason string
		samples      []sample
		want         string
	}{
		{"flat", "nothing grows", soaked(60, flat), ""},
		{"warm-up", "what a manager takes while it starts is not held against it", soaked(60, func(i int) reading {
			r := flat(i)
			if i < 12 {
				r.live, r.goroutines = mebibyte, 20
			}
			return r
		}), ""},
		{"spike", "a single sample tells nothing", soaked(60, func(i int) reading {
			r := flat(i)
			if i == 55 {
				r.live, r.goroutines = 300*mebibyte, 3000
			}
			return r
		}), ""},
		{"goroutines", "one goroutine for each sample is a leak", soaked(60, func(i int) reading {
			r := flat(i)
			r.goroutines += float64(2 * i)
			return r
		}), "goroutines was"},
		{"heap", "half a mebibyte for each sample is a leak", soaked(60, func(i int) reading {
			r := flat(i)
			r.live += float64(i * mebibyte / 2)
			return r
		}), "live MiB was"},
		{"restart", "the numbers of another process can't be compared", soaked(60, func(i int) reading {
			r := flat(i)
			r.started = float64(1 + i/50)
			return r
		}), "started again"},
		{"short", "nothing passes that was not looked at", soaked(2, flat), "too few"},
		{"empty", "nothing passes that was not looked at", nil, "too few"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := &curves{samples: tc.samples}
			got := strings.Join(c.problems([]string{"m1"}), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCurvesAreShown(t *testing.T) {
	t.Parallel()
	c := &curves{samples: soaked(60, func(i int) reading { return reading{goroutines: float64(i)} })}
	rows := strings.Split(strings.TrimSpace(c.table([]string{"m1"})), "\n")
	if len(rows) != 1+rowsShown+len(allSeries()) || !strings.Contains(rows[1], " 0s ") || !strings.Contains(rows[rowsShown], "29m30s") {
		t.Errorf("the table is not of %d rows from the first sample to the last:\n%s", rowsShown, strings.Join(rows, "\n"))
	}
	_ = (&curves{}).table([]string{"m1"}) // of nothing
}

func TestReadingOf(t *testing.T) {
	t.Parallel()
	page := `# HELP go_goroutines Number of goroutines that currently exist.
go_goroutines 200
go_gc_heap_live_bytes 3.1e+07
go_memstats_heap_inuse_bytes 4e+07
process_resident_memory_bytes 9e+07
process_start_time_seconds 1.7e+09
`
	want := reading{resident: 9e7, inUse: 4e7, live: 3.1e7, goroutines: 200, started: 1.7e9}
	if got, err := readingOf(page); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", strings.Replace(page, "go_goroutines 200", "", 1), strings.Replace(page, "200", "many", 1)} {
		if _, err := readingOf(bad); err == nil {
			t.Errorf("a page is taken that lacks a number:\n%s", bad)
		}
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	for _, known := range [][]string{nil, {"mutants"}, {"soak"}} {
		if _, err := mode(known); err != nil {
			t.Error(err)
		}
	}
	if _, err := mode([]string{"mutant"}); err == nil {
		t.Error("an unknown word plays chaos")
	}
}
