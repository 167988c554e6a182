package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const folder = "/test/registries/"

// tested is what the tests of one driver used, and what became of them: pass, fail, skip, or nothing if they were cut off.
type tested struct {
	servers []string
	ended   string
}

// report prints a line for each driver: the servers that its tests used or could not have, and what became of them. How many there were,
// and why some were skipped, is gotestsum's to show.
func report(out io.Writer, file string) error {
	all, err := read(file)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nDRIVER\tTESTS\tSERVER")
	for _, driver := range slices.Sorted(maps.Keys(all)) {
		its := all[driver]
		slices.Sort(its.servers)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", driver, cmp.Or(its.ended, "CUT OFF"), strings.Join(slices.Compact(its.servers), ", "))
	}
	return table.Flush()
}

// read takes from what go test -json wrote what is about drivers. Lines that are not JSON are what a build says.
func read(file string) (map[string]*tested, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading the results of the tests: %w", err)
	}
	defer in.Close()
	all := map[string]*tested{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20) //nolint:mnd // longer than any line
	for lines.Scan() {
		var e struct{ Action, Package, Test, Key, Value string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		_, driver, found := strings.Cut(e.Package, folder)
		if !found || strings.Contains(driver, "/") {
			continue
		}
		if all[driver] == nil {
			all[driver] = &tested{}
		}
		all[driver].add(e.Action, e.Test, e.Key, e.Value)
	}
	return all, lines.Err()
}

func (t *tested) add(action, test, key, value string) {
	switch {
	case key == registries.AttrServer:
		t.servers = append(t.servers, value)
	case key == registries.AttrMissing:
		t.servers = append(t.servers, "!!! NONE: "+value)
	case test == "" && action == "fail":
		t.ended = "FAILED"
	case test == "" && (action == "pass" || action == "skip"):
		t.ended = action
	}
}
