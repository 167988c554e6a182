package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/results"
)

const folder = "/test/registries/"

// report prints a line for each package of tests: the servers that they used, those that can't be had here, and what came of
// them. It judges nothing: where a server is required, the tests that need it have failed.
func report(out io.Writer, file string) error {
	packages, err := results.ReadFile(file)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nDRIVER\tSERVER\tTESTS")
	for _, p := range packages {
		if _, driver, found := strings.Cut(p.Path, folder); found && !strings.Contains(driver, "/") {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", driver, servers(p), outcome(p))
		}
	}
	return table.Flush()
}

func servers(p *results.Package) string {
	var all []string
	for _, a := range p.Attributes {
		switch a.Key {
		case registries.AttrServer:
			all = append(all, a.Value)
		case registries.AttrMissing:
			all = append(all, "!!! NONE: "+a.Value)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// outcome is the last column: "83 passed, 2 skipped: reason (2)".
func outcome(p *results.Package) string {
	counts, reasons := p.Counts()
	text := fmt.Sprintf("%d passed", counts["pass"])
	if failed := counts["fail"] + counts[results.Unfinished]; failed > 0 || !p.OK() {
		text += fmt.Sprintf(", %d FAILED", max(failed, 1))
	}
	if counts["skip"] > 0 {
		text += fmt.Sprintf(", %d skipped: %s", counts["skip"], results.Sorted(reasons))
	}
	return text
}
