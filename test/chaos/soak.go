package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	defaultSoak = 30 * time.Minute
	// soakStorms are about how many storms and calms a soak has, and fewestReadings how many it must have had to tell anything.
	soakStorms, fewestReadings = 6, 3
	// readWithin bounds one question to a manager.
	readWithin = 10 * time.Second
	mebibyte   = 1 << 20
)

// soakPlan is rollouts alone, as fast as they come: with nothing going wrong the managers have no reason to grow.
func soakPlan(seed uint64, workloads int, length time.Duration) planner {
	return planner{
		seed: seed, workloads: workloads, storm: length / soakStorms, workEvery: 1200 * time.Millisecond,
		work: []share{
			{update, 5}, {recreate, 2}, {rollBack, 3}, {scaleOut, 2}, {scaleIn, 2}, {cancelDelete, 2}, {markDeleted, 2},
		},
	}
}

// soak lets two managers work for long, and looks at what they hold.
func soak(ctx context.Context, out *output) error {
	length, seed, err := runFrom("SOAK", defaultSoak, out)
	if err != nil {
		return err
	}
	return withManager(ctx, out, startStandIn, func(w *world, binary string) error {
		g := &game{
			world: w, binary: binary, plan: soakPlan(seed, len(workloads()), length), replicas: replicas, length: length, held: held{},
		}
		if err := g.play(ctx); err != nil {
			return err
		}
		problems := g.held.problems()
		for _, problem := range problems {
			g.report.note(problem)
		}
		err := g.verdict(fmt.Sprintf("make soak SEED=%d SOAK=%s", seed, length), historiesShown)
		out.plain(fmt.Sprintf("soak: %s, %d transitions, %d pods, %d problems with what %s hold",
			length, g.journal.Counts().Transitions, len(g.journal.Known()), len(problems), strings.Join(g.managers.names(), " and ")))
		return err
	})
}

// reading is what a manager holds when nothing is under way.
type reading struct {
	// live is in bytes, after a garbage collection.
	live, goroutines float64
	// started tells one process from the one after it.
	started float64
}

// held is what each manager held in the calms of a soak.
type held map[string][]reading

// take reads what the managers hold now, which is written down and shown.
func (h held) take(ctx context.Context, all []*contender, out *output) error {
	for _, one := range all {
		r, err := one.read(ctx)
		if err != nil {
			return fmt.Errorf("manager %s: %w", one.name, err)
		}
		out.printf("manager %s: %.1f MiB are live, %.0f goroutines", one.name, r.live/mebibyte, r.goroutines)
		h[one.name] = append(h[one.name], r)
	}
	return nil
}

// read asks a manager, after it has collected its garbage.
func (m *contender) read(ctx context.Context) (r reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if _, err := registries.NewClient("http://"+m.profiles).Do(ctx, http.MethodGet, "/debug/pprof/heap?gc=1", nil); err != nil {
		return r, fmt.Errorf("asking for a garbage collection: %w", err)
	}
	page, err := m.manager.Get(ctx, manager.MetricsServer, "/metrics")
	if err != nil {
		return r, err
	}
	return readingOf(page)
}

// readingOf takes the numbers out of a page of metrics, all of which must be there.
func readingOf(page string) (r reading, err error) {
	want := map[string]*float64{
		"process_start_time_seconds": &r.started, "go_gc_heap_live_bytes": &r.live, "go_goroutines": &r.goroutines,
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

// problems says what has grown from the first calm to the last. What a manager takes while it starts comes before the first.
func (h held) problems() (all []string) {
	complain := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for name, of := range h {
		first, last := of[0], of[len(of)-1]
		if len(of) < fewestReadings {
			complain("manager %s: %d calms are too few to tell", name, len(of))
		}
		if first.started != last.started {
			complain("manager %s was started again: its readings are of two processes", name)
		}
		if last.live > first.live*1.25+mebibyte {
			complain("LEAK? manager %s: %.1f MiB were live in the first calm and %.1f in the last", name, first.live/mebibyte, last.live/mebibyte)
		}
		if last.goroutines > first.goroutines*1.1+10 {
			complain("LEAK? manager %s: %.0f goroutines in the first calm and %.0f in the last", name, first.goroutines, last.goroutines)
		}
	}
	if len(h) == 0 {
		complain("no manager was asked")
	}
	return all
}
