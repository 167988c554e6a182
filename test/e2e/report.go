package main

import (
	"fmt"
	"io"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// shown is how many failures of Rollcall's arm are written out; the file has all.
const shown = 20

// result is what came of the requests of one arm in one scenario.
type result struct {
	requests int
	failures []rollout.Failure
}

// row is a line of the table.
type row struct {
	scenario string
	lossy    string // why it does not count, if so
	took     time.Duration
	arms     map[string]result
}

// report writes the table and the last line, and returns command.ErrFailed where that is not as it should be.
func report(out io.Writer, rows []row) error {
	lost, requests, counted := map[string]int{}, 0, 0
	var notes []string
	const format = "%-56v %8v %10v %10v %10v %10v %10v\n"
	fmt.Fprintln(out, "\nRequests that failed")
	fmt.Fprintf(out, format, "scenario", "seconds", "requests", withRollcall, hooksOnly, withPreStop, mirrorOnly)
	for _, r := range rows {
		name := r.scenario
		if r.lossy != "" {
			name += " *"
			notes = append(notes, fmt.Sprintf("* %s: does not count, since %s", r.scenario, r.lossy))
		}
		sent := 0
		for _, result := range r.arms {
			sent += result.requests
		}
		fmt.Fprintf(out, format, name, int(r.took.Seconds()), sent, len(r.arms[withRollcall].failures),
			len(r.arms[hooksOnly].failures), len(r.arms[withPreStop].failures), len(r.arms[mirrorOnly].failures))
		if r.lossy != "" {
			continue
		}
		counted++
		requests += sent
		for name, result := range r.arms {
			lost[name] += len(result.failures)
		}
	}
	for _, note := range notes {
		fmt.Fprintln(out, note)
	}
	fmt.Fprintf(out, "e2e: %d scenarios, %d requests; failed: "+
		"%d with rollcall, %d without its preStop sleep, %d with preStop and mirror, %d with mirror\n",
		counted, requests, lost[withRollcall], lost[hooksOnly], lost[withPreStop], lost[mirrorOnly])
	if lost[withRollcall] > 0 {
		return command.ErrFailed
	}
	return nil
}

// tell writes what failed in a scenario: for each arm how often and why, and with Rollcall each request.
func tell(out io.Writer, r row) {
	for _, name := range armNames() {
		result := r.arms[name]
		fmt.Fprintf(out, "  %-8s  %5d requests, %4d failed", name, result.requests, len(result.failures))
		if len(result.failures) > 0 {
			fmt.Fprintf(out, ": %s", reasons(result.failures))
		}
		fmt.Fprintln(out)
	}
	failures := r.arms[withRollcall].failures
	for _, f := range failures[:min(shown, len(failures))] {
		fmt.Fprintf(out, "    %s\n", lineOf(f))
	}
}

// tellLost writes what failed in an arm of one scenario.
func (w *world) tellLost(a *staged) {
	failures := a.client.Failures()
	if len(failures) > 0 {
		w.say("  %s: %s", a.name, reasons(failures))
	}
	for _, f := range failures {
		fmt.Fprintln(w.failures, lineOf(f))
	}
}

func lineOf(f rollout.Failure) string {
	return fmt.Sprintf("%s  %-6s  %-12s  %s", f.At.Format("15:04:05.000"), f.Client, f.Pod, f.Why)
}
