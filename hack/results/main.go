// Command results sums up what go test -json has written into files, for the scripts in hack and for CI.
//
//	go run ./hack/results failed FILE...       name the tests that failed, with the first lines of each
//	go run ./hack/results sum FILE=FLOOR...    count the tests and the reasons of those skipped; with fewer than FLOOR
//	                                           that passed in a file, the run fails
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/results"
)

const (
	module = "github.com/rollcall-dev/rollcall/"
	// mostNamed is how many tests of a package are named: where one panics, all that were running are unfinished.
	mostNamed = 10
	// mostSaid is how many lines are shown of what a test said, and longest how much of a line.
	mostSaid, longest = 8, 300
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	switch {
	case len(args) > 1 && args[0] == "failed":
		return failed(out, args[1:])
	case len(args) > 1 && args[0] == "sum":
		return sum(out, args[1:])
	default:
		return errors.New("no command: write failed FILE, or sum FILE=FLOOR, with one file or several")
	}
}

// failed names each test that failed, and each package that failed without one.
func failed(out io.Writer, files []string) error {
	for _, file := range files {
		packages, err := results.ReadFile(file)
		if err != nil {
			return err
		}
		for _, p := range packages {
			for _, line := range failures(p) {
				_, _ = fmt.Fprintln(out, line)
			}
		}
	}
	return nil
}

func failures(p *results.Package) []string {
	path := "./" + strings.TrimPrefix(p.Path, module)
	names := p.Failed()
	switch {
	case p.OK() && len(names) == 0:
		return nil
	case len(names) == 0 && !p.Ran:
		return []string{path + ": it does not build, or ended before its first test"}
	case len(names) == 0:
		return []string{path + ": no test failed, yet the run did" + again(p)}
	}
	var lines []string
	for _, name := range names[:min(len(names), mostNamed)] {
		lines = append(lines, path+" "+name+again(p))
		for _, line := range p.Said(name, mostSaid) {
			lines = append(lines, "    "+line[:min(len(line), longest)])
		}
	}
	if more := len(names) - mostNamed; more > 0 {
		lines = append(lines, fmt.Sprintf("%s: and %d more", path, more))
	}
	return lines
}

// again says how to run the tests in the same order.
func again(p *results.Package) string {
	if p.Seed == "" {
		return ""
	}
	return " (SHUFFLE=" + p.Seed + ")"
}

// sum prints what became of the tests of each file. Its last line is for scripts: how many passed and how many failed.
func sum(out io.Writer, wanted []string) error {
	passed, failed := 0, 0
	var short error
	for _, w := range wanted {
		file, text, _ := strings.Cut(w, "=")
		floor, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q: set a file and the least number of its tests, such as bin/results/unit.json=100", w)
		}
		got, err := count(file)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		_, _ = fmt.Fprintf(out, "%-16s %5d passed, %d failed, %d skipped\n", name, got.passed, got.failed, got.skipped)
		for _, reason := range slices.Sorted(maps.Keys(got.reasons)) {
			_, _ = fmt.Fprintf(out, "    %d skipped: %s\n", got.reasons[reason], reason)
		}
		if got.passed < floor {
			short = errors.Join(short, fmt.Errorf("%s: %d tests passed, and there must be %d: what became of the others? "+
				"If tests were removed on purpose, lower the floor", name, got.passed, floor))
		}
		passed, failed = passed+got.passed, failed+got.failed
	}
	_, _ = fmt.Fprintln(out, passed, failed)
	return short
}

// tally is what became of the tests of a file. A package that failed without a failed test counts as one.
type tally struct {
	passed, failed, skipped int
	reasons                 map[string]int
}

// count counts the tests of a file, of which there are none where there is no file.
func count(file string) (tally, error) {
	t := tally{reasons: map[string]int{}}
	packages, err := results.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	for _, p := range packages {
		outcomes, reasons := p.Counts()
		t.passed += outcomes["pass"]
		t.skipped += outcomes["skip"]
		t.failed += max(len(p.Failed()), min(len(failures(p)), 1))
		for reason, n := range reasons {
			t.reasons[reason] += n
		}
	}
	return t, err
}
