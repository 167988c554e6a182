package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestWhatCILeavesOutHasItsTurn: a day says what it leaves out, which one of the three after it runs, and make nightly too. Storms are
// run each day, on the stand-in or a registry.
func TestWhatCILeavesOutHasItsTurn(t *testing.T) {
	t.Parallel()
	runs, leaves := map[int][]string{}, map[int][]string{}
	for day := range 12 {
		plan := exec.CommandContext(t.Context(), "../../.ci/run", "plan")
		plan.Env = append(os.Environ(), fmt.Sprintf("ROLLCALL_CI_DAY=%d", day))
		out, err := plan.CombinedOutput()
		expect.NoError(t, err)
		said, left, found := strings.Cut(string(out), "!!!! LEFT OUT TODAY: ")
		if !found || strings.Count(strings.TrimSpace(left), "\n") > 0 {
			t.Fatalf("day %d has no line of what it leaves out: %s", day, out)
		}
		runs[day] = strings.Split(strings.ReplaceAll(said, "==== ", ""), "\n")
		for _, match := range regexp.MustCompile(`(make [^(]+) \(in \d+ d\)`).FindAllStringSubmatch(left, -1) {
			leaves[day] = append(leaves[day], match[1])
		}
	}
	nightly, storms := nightlyTargets(t), targetsIn(t, "STORMS")
	for day := range 8 {
		if len(leaves[day]) == 0 {
			t.Errorf("day %d leaves out nothing: the test looks for the wrong thing", day)
		}
		if !strings.Contains(strings.Join(runs[day], "\n"), "make chaos") {
			t.Errorf("day %d runs no storm", day)
		}
		for _, storm := range storms {
			if days := slices.Concat(runs[day], runs[day+1], runs[day+2], runs[day+3]); !strings.Contains(strings.Join(days, "\n"), "make "+storm+" ") {
				t.Errorf("no day from %d to %d runs make %s", day, day+3, storm)
			}
		}
		for _, what := range leaves[day] {
			next := slices.Concat(runs[day+1], runs[day+2], runs[day+3])
			if slices.Contains(runs[day], what) || !slices.Contains(next, what) || !slices.Contains(nightly, strings.Fields(what)[1]) {
				t.Errorf("day %d leaves out %q, and no day soon runs it, or make nightly does not", day, what)
			}
		}
	}
}
