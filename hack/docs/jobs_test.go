package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// TestResultsAreSummedUp: CI counts tests, shows why some were skipped and what failed, and fails with fewer tests than there were.
func TestResultsAreSummedUp(t *testing.T) {
	t.Parallel()
	const pkg = `"Package":"github.com/rollcall-dev/rollcall/internal/a"`
	event := func(action, test, text string) string {
		return `{"Action":"` + action + `",` + pkg + `,"Test":"` + test + `","Output":"` + text + `"}`
	}
	file := filepath.Join(t.TempDir(), "unit.json")
	expect.NoError(t, os.WriteFile(file, []byte(strings.Join([]string{
		"go: downloading something",
		`{"Action":"start",` + pkg + `}`, `{"Action":"output",` + pkg + `,"Output":"-test.shuffle 42\n"}`,
		event("run", "TestGood", ""), event("pass", "TestGood", ""),
		event("run", "TestBad", ""), event("output", "TestBad", `    a_test.go:9: got 1, want 2\n`), event("fail", "TestBad", ""),
		event("run", "TestServer", ""), event("output", "TestServer", `    a_test.go:7: no Java\n`), event("skip", "TestServer", ""),
		event("run", "TestCutOff", ""), `{"Action":"fail",` + pkg + `}`, "",
	}, "\n")), 0o600))
	for args, want := range map[string][]string{
		"failed " + file:       {"-test.shuffle 42", "a TestBad", "a_test.go:9: got 1, want 2", "a TestCutOff"},
		"sum " + file + "=1":   {"1 passed, 2 failed, 1 skipped", "1 skipped: no Java", "\n1 2\n"},
		"sum " + file + "=2":   {"1 tests passed, and there must be 2", "exit status 1"},
		"sum /no/unit.json=20": {"0 tests passed, and there must be 20", "exit status 1"},
		"":                     {"no command", "exit status 2"},
	} {
		said, err := exec.CommandContext(t.Context(), "../results.sh", strings.Fields(args)...).CombinedOutput()
		for _, part := range want {
			if !strings.Contains(fmt.Sprintf("%s%v", said, err), part) {
				t.Errorf("results.sh %s: %v\n%s\nwant %q", args, err, said, part)
			}
		}
	}
}
