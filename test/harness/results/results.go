// Package results reads what go test -json has written, for those who sum it up.
package results

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Unfinished is what became of a test that did not end.
const Unfinished = "unfinished"

// Package is what the tests of one Go package came to.
type Package struct {
	// Path is its import path.
	Path string
	// Ran reports that a test ran, whatever came of it.
	Ran bool
	// Ended is what became of the package: pass, fail, skip, or empty where the run was cut off.
	Ended string
	// Seed is that of the order in which its tests ran.
	Seed string
	// Attributes are those that the tests set with Attr.
	Attributes []Attribute

	tests  map[string]string   // what became of each test, by its name
	output map[string][]string // by test
}

// Attribute is one that a test set.
type Attribute struct{ Key, Value string }

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Key        string
	Value      string
}

// ReadFile is [Read] for a file.
func ReadFile(path string) ([]*Package, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the results of the tests: %w", err)
	}
	defer in.Close()
	all, err := Read(in)
	if err != nil {
		return nil, fmt.Errorf("reading the results of the tests in %s: %w", path, err)
	}
	return all, nil
}

// Read returns what became of each package, in the order of their paths. Lines that are no JSON are what a build says.
func Read(in io.Reader) ([]*Package, error) {
	all := map[string]*Package{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, fmt.Errorf("reading a line: %w", err)
		}
		var e event
		if json.Unmarshal(line, &e) == nil && e.Package != "" {
			if all[e.Package] == nil {
				all[e.Package] = &Package{Path: e.Package, tests: map[string]string{}, output: map[string][]string{}}
			}
			all[e.Package].add(e)
		}
		if last {
			byPath := func(a, b *Package) int { return cmp.Compare(a.Path, b.Path) }
			return slices.SortedFunc(maps.Values(all), byPath), nil
		}
	}
}

func (p *Package) add(e event) {
	switch e.Action {
	case "attr":
		if a := (Attribute{e.Key, e.Value}); !slices.Contains(p.Attributes, a) {
			p.Attributes = append(p.Attributes, a)
		}
	case "output":
		if seed, found := strings.CutPrefix(e.Output, "-test.shuffle "); found && e.Test == "" {
			p.Seed = strings.TrimSpace(seed)
		}
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case "run":
		p.Ran = true
		p.tests[e.Test] = Unfinished
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.Ended = e.Action
			return
		}
		p.tests[e.Test] = e.Action
	}
}

// Counts counts the tests that have no subtests, by what became of them, and those skipped by their reason.
func (p *Package) Counts() (outcomes, reasons map[string]int) {
	outcomes, reasons = map[string]int{}, map[string]int{}
	for name, became := range p.leaves() {
		outcomes[became]++
		if became == "skip" {
			reasons[skipReason(p.output[name])]++
		}
	}
	return outcomes, reasons
}

// Failed names the tests that failed or did not end, of those with subtests only what failed by itself.
func (p *Package) Failed() []string {
	var failed []string
	for name, became := range p.leaves() {
		if became == "fail" || became == Unfinished {
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	return failed
}

// Said returns the first lines that a test wrote, at most so many: what it failed with comes before the logs of its servers.
func (p *Package) Said(test string, most int) []string {
	var said []string
	for _, line := range p.output[test] {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if len(said) == most {
			break
		}
		said = append(said, line)
	}
	return said
}

// OK reports whether the package ended well.
func (p *Package) OK() bool { return p.Ended == "pass" || p.Ended == "skip" }

// leaves are the tests without those that passed or failed with their subtests.
func (p *Package) leaves() map[string]string {
	below := map[string]map[string]bool{} // what became of the subtests of a test
	for name, became := range p.tests {
		for parent := name; ; {
			i := strings.LastIndex(parent, "/")
			if i < 0 {
				break
			}
			parent = parent[:i]
			if below[parent] == nil {
				below[parent] = map[string]bool{}
			}
			below[parent][became] = true
		}
	}
	leaves := maps.Clone(p.tests)
	for name, became := range p.tests {
		// A parent that failed by itself, did not end or was skipped half-way is not seen in its subtests.
		its := below[name]
		if became == "pass" && its != nil || became != "skip" && (its["fail"] || its[Unfinished]) {
			delete(leaves, name)
		}
	}
	return leaves
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

// Sorted tells of each reason how often it was given: "no Java (3); too slow (1)".
func Sorted(reasons map[string]int) string {
	var texts []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		texts = append(texts, fmt.Sprintf("%s (%d)", reason, reasons[reason]))
	}
	return strings.Join(texts, "; ")
}
