package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// sampleEvery is how often the managers are asked in a long soak, and fewestSamples how often at least in a short one.
	sampleEvery   = 30 * time.Second
	fewestSamples = 30
	// readWithin bounds one question.
	readWithin = 5 * time.Second
	// rowsShown of the table, however long the soak was.
	rowsShown = 18
	mebibyte  = 1 << 20
)

// reading is what a manager says of itself, in bytes but for the goroutines.
type reading struct {
	resident, inUse, live, goroutines float64
	// started tells one process from the one after it.
	started float64
}

// sample is one moment of a soak.
type sample struct {
	at          time.Duration // since the soak began
	transitions int
	of          map[string]reading // by manager
}

// series is one number of a reading, and how far it may grow over a soak: by a share of what it was, and by slack. What has
// neither is shown and not judged.
type series struct {
	name         string
	unit         float64
	of           func(reading) float64
	share, slack float64
}

// allSeries are what a soak looks at. The live heap is what the last garbage collection could not free: unlike the heap in
// use it does not depend on how long ago that was. Go gives memory back when it likes, so what is resident is not judged.
func allSeries() []series {
	return []series{
		{name: "resident MiB", unit: mebibyte, of: func(r reading) float64 { return r.resident }},
		{name: "in use MiB", unit: mebibyte, of: func(r reading) float64 { return r.inUse }},
		{name: "live MiB", unit: mebibyte, of: func(r reading) float64 { return r.live }, share: 0.25, slack: mebibyte},
		{name: "goroutines", unit: 1, of: func(r reading) float64 { return r.goroutines }, share: 0.1, slack: 10},
	}
}

// curves collects the samples of a soak. It is safe for concurrent use.
type curves struct {
	every time.Duration

	mu      sync.Mutex
	samples []sample
	missed  []string
}

func newCurves(length time.Duration) *curves {
	return &curves{every: min(sampleEvery, length/fewestSamples)}
}

func (c *curves) follow(ctx context.Context, m *managers, transitions func() int) {
	began := time.Now()
	for next := began.Add(c.every); ; next = next.Add(c.every) {
		wait.Pause(ctx, time.Until(next))
		if ctx.Err() != nil {
			return
		}
		s := sample{at: time.Since(began), transitions: transitions(), of: map[string]reading{}}
		var missed []string
		for _, one := range m.all {
			r, err := read(ctx, one.manager)
			if err != nil && ctx.Err() == nil {
				missed = append(missed, fmt.Sprintf("after %s manager %s: %v", s.at.Round(time.Second), one.name, err))
			}
			if err == nil {
				s.of[one.name] = r
			}
		}
		c.mu.Lock()
		c.samples, c.missed = append(c.samples, s), append(c.missed, missed...)
		c.mu.Unlock()
	}
}

func read(ctx context.Context, m *manager.Manager) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	_, text, err := m.Get(ctx, manager.MetricsServer, "/metrics")
	if err != nil {
		return reading{}, err
	}
	return readingOf(text)
}

// readingOf takes the numbers out of a page of metrics, all of which must be there.
func readingOf(page string) (r reading, err error) {
	want := map[string]*float64{
		"process_resident_memory_bytes": &r.resident, "process_start_time_seconds": &r.started,
		"go_memstats_heap_inuse_bytes": &r.inUse, "go_gc_heap_live_bytes": &r.live, "go_goroutines": &r.goroutines,
	}
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if target := want[name]; target != nil {
			if *target, err = strconv.ParseFloat(value, 64); err != nil {
				return reading{}, fmt.Errorf("reading the metric %s: %w", name, err)
			}
			delete(want, name)
		}
	}
	for name := range want {
		return reading{}, fmt.Errorf("there is no metric %s", name)
	}
	return r, nil
}

// problems says what is wrong with the curves: managers that did not answer or ended, and what has grown.
func (c *curves) problems(names []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.missed)
	for _, name := range names {
		if !sameProcess(c.samples, name) {
			all = append(all, fmt.Sprintf("manager %s was started again: its curve is of two processes", name))
		}
		for _, s := range allSeries() {
			if why := s.grown(c.samples, name); why != "" {
				all = append(all, fmt.Sprintf("LEAK? manager %s: %s", name, why))
			}
		}
	}
	return all
}

func sameProcess(samples []sample, name string) bool {
	return !slices.ContainsFunc(samples, func(s sample) bool { return s.of[name].started != samples[0].of[name].started })
}

// grown says that a number of a manager is higher in the last third of a soak than it was in the first, or nothing. The
// first fifth is warm-up and left out. Medians are held against each other, so that no single sample decides.
func (s series) grown(samples []sample, name string) string {
	if s.share == 0 && s.slack == 0 {
		return ""
	}
	before, after, enough := s.thirds(samples, name)
	switch {
	case !enough:
		return fmt.Sprintf("%s: %d samples are too few to tell", s.name, len(samples))
	case after > before*(1+s.share)+s.slack:
		return fmt.Sprintf("%s was %.1f in the first third after warm-up and %.1f in the last", s.name, before/s.unit, after/s.unit)
	default:
		return ""
	}
}

// thirds returns the medians of the first and the last third of what comes after the warm-up.
func (s series) thirds(samples []sample, name string) (first, last float64, enough bool) {
	warm := samples[len(samples)/5:]
	third := len(warm) / 3
	if third == 0 {
		return 0, 0, false
	}
	return s.median(warm[:third], name), s.median(warm[len(warm)-third:], name), true
}

func (s series) median(samples []sample, name string) float64 {
	var all []float64
	for _, one := range samples {
		all = append(all, s.of(one.of[name]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// table shows the samples in so many rows at most, the first and the last among them.
func (c *curves) table(names []string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "%8s %12s", "time", "transitions")
	for _, name := range names {
		for _, s := range allSeries() {
			fmt.Fprintf(&text, " %*s", len(name)+1+len(s.name), name+" "+s.name)
		}
	}
	text.WriteString("\n")
	rows := min(rowsShown, len(c.samples))
	for row := range rows {
		one := c.samples[row*(len(c.samples)-1)/max(1, rows-1)]
		fmt.Fprintf(&text, "%8s %12d", one.at.Round(time.Second), one.transitions)
		for _, name := range names {
			for _, s := range allSeries() {
				fmt.Fprintf(&text, " %*.1f", len(name)+1+len(s.name), s.of(one.of[name])/s.unit)
			}
		}
		text.WriteString("\n")
	}
	for _, name := range names {
		for _, s := range allSeries() {
			first, last, _ := s.thirds(c.samples, name)
			fmt.Fprintf(&text, "%s %s: median %.1f in the first third after warm-up and %.1f in the last\n", name, s.name,
				first/s.unit, last/s.unit)
		}
	}
	return text.String()
}
