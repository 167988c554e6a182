package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A surface is what a person may have to know of: the pages list all of it, and tests hold the pages against the code.
type surface struct {
	what string
	// pages are below docs, as a pattern; after and before bound the part that counts, and are whole lines.
	pages, after, before string
	// each finds one.
	each *regexp.Regexp
}

var (
	names    = regexp.MustCompile("`(rollcall\\.dev/[A-Za-z-]+)`")
	fields   = regexp.MustCompile("`([a-zA-Z.]+)`")
	rows     = regexp.MustCompile("^\\| `(?:--)?([A-Za-z_-]+)[ `]")
	reasons  = regexp.MustCompile("^### (.*)")
	commands = regexp.MustCompile("^## kubectl rollcall (.*)")
)

func surfaces() []surface {
	const configuration = "configuration.md"
	return []surface{
		{"names", configuration, "## Annotations", "## Reload", names},
		{"flags", "reference/flags.md", "", "", rows},
		{"keys", configuration, "", "## Several registries", fields},
		{"keys", configuration, "## Who may use a name", "## Which address", fields},
		{"options", "drivers/*.md", "<!-- options:", "<!-- /options -->", rows},
		{"reasons", "reference/reasons.md", "", "", reasons},
		{"metrics", "reference/metrics.md", "", "", rows},
		{"commands", "reference/kubectl-rollcall.md", "", "", commands},
	}
}

// countSurface prints how many there are of each.
func countSurface(out io.Writer) error {
	var order []string
	found := map[string]map[string]bool{}
	for _, s := range surfaces() {
		if found[s.what] == nil {
			order, found[s.what] = append(order, s.what), map[string]bool{}
		}
		pages, err := filepath.Glob(filepath.Join("docs", s.pages))
		if err != nil || len(pages) == 0 {
			return fmt.Errorf("there is no docs/%s here: run it at the top of the repository", s.pages)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				return fmt.Errorf("reading: %w", err)
			}
			for _, name := range s.in(string(text)) {
				found[s.what][name] = true
				if s.what == "options" { // those of two drivers are two
					delete(found[s.what], name)
					found[s.what][page+name] = true
				}
			}
		}
		if len(found[s.what]) == 0 {
			return fmt.Errorf("docs/%s lists no %s: correct hack/numbers/surface.go", s.pages, s.what)
		}
	}
	fmt.Fprintln(out, "\nsurface\tnumber\tin")
	for _, what := range order {
		at := slices.IndexFunc(surfaces(), func(s surface) bool { return s.what == what })
		fmt.Fprintf(out, "%s\t%d\tdocs/%s\n", what, len(found[what]), surfaces()[at].pages)
	}
	return nil
}

// in returns what of it a page has.
func (s surface) in(text string) (all []string) {
	counts := s.after == ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case s.after != "" && strings.HasPrefix(line, s.after):
			counts = true
		case s.before != "" && strings.HasPrefix(line, s.before):
			counts = false
		case counts:
			all = append(all, s.of(line)...)
		}
	}
	return all
}

// of returns what a line has. Of a table, its first column counts.
func (s surface) of(line string) (all []string) {
	if s.each == names || s.each == fields {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			return nil
		}
		line = cells[1]
	}
	for _, match := range s.each.FindAllStringSubmatch(line, -1) {
		all = append(all, match[1])
	}
	return all
}
