package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/results"
)

const folder = "/test/registries/"

// result is what the tests of one driver came to.
type result struct {
	*results.Package
	servers []string
	missing []string
}

// report prints a line for each driver. What was not tested is an error where it is required.
func report(out io.Writer, file string, drivers []string, required bool) error {
	packages, err := results.ReadFile(file)
	if err != nil {
		return err
	}
	ofDriver := map[string]*result{}
	for _, p := range packages {
		if dir, driver := path.Split(p.Path); strings.HasSuffix(dir, folder) {
			ofDriver[driver] = newResult(p)
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nDRIVER\tSERVER\tTESTS")
	var untested []string
	for _, d := range drivers {
		r := cmp.Or(ofDriver[d], &result{Package: &results.Package{}})
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

func newResult(p *results.Package) *result {
	r := &result{Package: p}
	for _, a := range p.Attributes {
		switch a.Key {
		case registries.AttrServer:
			r.servers = append(r.servers, a.Value)
		case registries.AttrMissing:
			r.missing = append(r.missing, a.Value)
		}
	}
	slices.Sort(r.servers)
	slices.Sort(r.missing)
	return r
}

// complete reports whether all tests were run, each on the server that it is meant for.
func (r *result) complete() bool {
	return r.Ran && r.Ended != "" && len(r.missing) == 0 && len(r.servers) > 0
}

// String is the last column: "83 passed, 2 skipped: reason (2)", and loudly what was not tested.
func (r *result) String() string {
	if !r.Ran {
		return "!!! NOT TESTED: its tests did not run"
	}
	counts, reasons := r.Counts()
	text := fmt.Sprintf("%d passed", counts["pass"])
	if failed := counts["fail"] + counts[results.Unfinished]; failed > 0 {
		text += fmt.Sprintf(", %d FAILED", failed)
	}
	if counts["fail"] == 0 && r.Ended != "pass" {
		text += ", and THE RUN FAILED"
	}
	if counts["skip"] > 0 {
		text += fmt.Sprintf(", %d skipped: %s", counts["skip"], results.Sorted(reasons))
	}
	switch {
	case len(r.missing) > 0:
		return "!!! NOT TESTED on a server that can't be had here: " + strings.Join(r.missing, "; ") + "; else " + text
	case len(r.servers) == 0:
		return "!!! NOT TESTED: no test named a server; " + text
	}
	return text
}
