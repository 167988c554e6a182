package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rollcall-dev/rollcall/test/registries"
)

const folder = "/test/registries/"

// event is a line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Key     string
	Value   string
}

// result is what the tests of one driver came to.
type result struct {
	ran     bool              // the package's tests were run, whatever came of them
	ended   string            // what became of the package: pass, fail or skip
	tests   map[string]string // what became of each test, by its name
	output  map[string][]string
	servers []string
	missing []string
}

// report prints a line for each driver. What was not tested is an error where it is required.
func report(out io.Writer, file string, drivers []string, required bool) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading the results of the tests: %w", err)
	}
	defer in.Close()
	results, err := read(in)
	if err != nil {
		return fmt.Errorf("reading the results of the tests in %s: %w", file, err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nDRIVER\tSERVER\tTESTS")
	var untested []string
	for _, d := range drivers {
		r := cmp.Or(results[d], &result{})
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", d, cmp.Or(strings.Join(r.servers, ", "), "-"), r)
		if !r.complete() {
			untested = append(untested, d)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	if required && len(untested) > 0 {
		return errors.New("not tested on all their servers, which is required here: " + strings.Join(untested, ", "))
	}
	return nil
}

// read returns the result of each driver that has a package.
func read(in io.Reader) (map[string]*result, error) {
	results := map[string]*result{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, err
		}
		var e event
		// Other lines are what gotestsum or a build says.
		if json.Unmarshal(line, &e) == nil {
			if dir, driver := path.Split(e.Package); strings.HasSuffix(dir, folder) {
				if results[driver] == nil {
					results[driver] = &result{tests: map[string]string{}, output: map[string][]string{}}
				}
				results[driver].add(e)
			}
		}
		if last {
			return results, nil
		}
	}
}

func (r *result) add(e event) {
	switch e.Action {
	case "attr":
		r.attr(e.Key, e.Value)
	case "output":
		r.output[e.Test] = append(r.output[e.Test], e.Output)
	case "run":
		r.ran = true
		r.tests[e.Test] = "unfinished"
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.ended = e.Action
			return
		}
		r.tests[e.Test] = e.Action
	}
}

func (r *result) attr(key, value string) {
	list := &r.servers
	switch key {
	case registries.AttrServer:
	case registries.AttrMissing:
		list = &r.missing
	default:
		return
	}
	if !slices.Contains(*list, value) {
		*list = append(*list, value)
		slices.Sort(*list)
	}
}

// complete reports whether all tests were run, each on the server that it is meant for.
func (r *result) complete() bool {
	return r.ran && r.ended != "" && len(r.missing) == 0 && len(r.servers) > 0
}

// String is the last column: "83 passed, 2 skipped: reason (2)", and loudly what was not tested.
func (r *result) String() string {
	if !r.ran {
		return "!!! NOT TESTED: its tests did not run"
	}
	counts, reasons := r.count()
	text := fmt.Sprintf("%d passed", counts["pass"])
	if failed := counts["fail"] + counts["unfinished"]; failed > 0 {
		text += fmt.Sprintf(", %d FAILED", failed)
	}
	if counts["fail"] == 0 && r.ended != "pass" {
		text += ", and THE RUN FAILED"
	}
	if counts["skip"] > 0 {
		text += fmt.Sprintf(", %d skipped: %s", counts["skip"], list(reasons))
	}
	switch {
	case len(r.missing) > 0:
		return "!!! NOT TESTED on a server that can't be had here: " + strings.Join(r.missing, "; ") + "; else " + text
	case len(r.servers) == 0:
		return "!!! NOT TESTED: no test named a server; " + text
	}
	return text
}

// count counts the tests that have no subtests, by what became of them, and those skipped by their reason.
func (r *result) count() (counts, reasons map[string]int) {
	parents := map[string]bool{}
	for name := range r.tests {
		for {
			i := strings.LastIndex(name, "/")
			if i < 0 {
				break
			}
			name = name[:i]
			parents[name] = true
		}
	}
	counts, reasons = map[string]int{}, map[string]int{}
	for name, became := range r.tests {
		// A parent that failed by itself, or was skipped half-way, is not seen in its subtests.
		if parents[name] && (became == "pass" || became == "fail") {
			continue
		}
		counts[became]++
		if became == "skip" {
			reasons[skipReason(r.output[name])]++
		}
	}
	return counts, reasons
}

func list(reasons map[string]int) string {
	var texts []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		texts = append(texts, fmt.Sprintf("%s (%d)", reason, reasons[reason]))
	}
	return strings.Join(texts, "; ")
}

var (
	// position is where a test logs something: "    suite_test.go:12: text".
	position = regexp.MustCompile(`^\s+\S+\.go:\d+: `)
	// ofCase is what the conformance suite puts before its reason.
	ofCase = regexp.MustCompile(`^\S+ skipped: `)
)

// skipReason is the last thing that the test said.
func skipReason(output []string) string {
	reason := "no reason given"
	for _, line := range output {
		at := position.FindString(line)
		switch {
		case at != "":
			reason = line[len(at):]
		case !strings.HasPrefix(strings.TrimSpace(line), "--- ") && !strings.HasPrefix(line, "=== "):
			reason += line
		}
	}
	return ofCase.ReplaceAllString(strings.Join(strings.Fields(reason), " "), "")
}
