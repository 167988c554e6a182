package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// ciRow is a line of .ci/jobs.
type ciRow struct {
	job, when string
	minutes   int
	target    string
}

func ciRows(t *testing.T) (all []ciRow) {
	t.Helper()
	table, err := os.ReadFile("../../.ci/jobs")
	expect.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 4 {
			t.Fatalf("%q is no row of .ci/jobs", line)
		}
		minutes, err := strconv.Atoi(words[2])
		expect.NoError(t, err)
		all = append(all, ciRow{words[0], words[1], minutes, words[3]})
	}
	return all
}

// TestJobsFitTheirTime: a pull request knows in 20 minutes with its jobs in parallel, and .ci/run takes 75 at most.
func TestJobsFitTheirTime(t *testing.T) {
	t.Parallel()
	const jobAtMost, runAtMost, nightAtMost, monthAtMost = 20, 75, 60, 180
	jobs, nights, run := map[string]int{}, map[string]int{}, 0
	for _, row := range ciRows(t) {
		switch row.when {
		case "pull":
			jobs[row.job] += row.minutes
			run += row.minutes
		case "alone":
			jobs[row.job] += row.minutes
		case "here":
			run += row.minutes
		case "night":
			nights[row.job] += row.minutes
		case "month":
			if row.minutes > monthAtMost {
				t.Errorf("job %s of the month takes %d minutes, want %d at most: split it", row.job, row.minutes, monthAtMost)
			}
		default:
			t.Errorf("job %s is run %q: want pull, alone, here, night or month", row.job, row.when)
		}
	}
	for job, minutes := range jobs {
		if minutes > jobAtMost {
			t.Errorf("job %s of a pull request takes %d minutes, want %d at most", job, minutes, jobAtMost)
		}
		if nights[job] > 0 {
			t.Errorf("job %s is of a pull request and of the night", job)
		}
	}
	for job, minutes := range nights {
		if minutes > nightAtMost {
			t.Errorf("job %s of the night takes %d minutes, want %d at most: split it", job, minutes, nightAtMost)
		}
	}
	if run > runAtMost {
		t.Errorf(".ci/run takes %d minutes, want %d at most", run, runAtMost)
	}
}

// TestEveryTestHasItsJob: what the Makefile can test is played by a job, and each job plays what the Makefile has.
func TestEveryTestHasItsJob(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	byHand := []string{
		"test-servers",    // part of make test
		"test-repeat",     // reproduces a flaky test
		"test-registries", // .ci/jobs has it for each registry
	}
	played := map[string]bool{}
	for _, row := range ciRows(t) {
		played[row.target] = true
		if !bytes.Contains(makefile, []byte(row.target)) {
			t.Errorf("job %s plays make %s, which the Makefile lacks", row.job, row.target)
		}
	}
	tests := 0
	for _, phony := range regexp.MustCompile(`(?m)^((?:test|chaos|e2e|soak|fuzz)[a-z0-9-]*)(?: [a-z0-9 -]*)?:(?:[^=]|$)`).FindAllSubmatch(makefile, -1) {
		tests++
		if target := string(phony[1]); !played[target] && !slices.Contains(byHand, target) {
			t.Errorf("no job of .ci/jobs plays make %s", target)
		}
	}
	if tests < 15 {
		t.Errorf("%d targets of the Makefile are tests: the expression misses some", tests)
	}
}
