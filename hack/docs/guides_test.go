package main

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestWhatTheGuidesNameExists: who follows a guide looks for a metric, an Event's reason, a flag or an annotation, and must
// find it. That the reference has all there are is for the other tests.
func TestWhatTheGuidesNameExists(t *testing.T) {
	t.Parallel()
	literals := literalsIn(t, "../../internal", "../../cmd", "../../registry")
	var flags []string
	for _, row := range flagsPage().rows {
		name, _, _ := strings.Cut(strings.Trim(row[0], "`"), " ")
		flags = append(flags, name)
	}
	for what, look := range map[string]struct {
		named  *regexp.Regexp
		exists []string
	}{
		"metric":     {regexp.MustCompile(`\b(rollcall_[a-z_]+[a-z])`), literals},
		"reason":     {regexp.MustCompile("(?:Warning |gets a |\\()`((?:[A-Z][a-z]+){2,})`|reason=\"([A-Za-z]+)\""), literals},
		"flag":       {regexp.MustCompile("`(--[a-z][a-z-]+)[` =]"), append(flags, "--help")},
		"annotation": {regexp.MustCompile(`\b(rollcall\.dev/[a-z-]+)`), literals},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			found := 0
			for guide, text := range guides(t) {
				for _, match := range look.named.FindAllStringSubmatch(text, -1) {
					found++
					if name := strings.Join(match[1:], ""); !slices.Contains(look.exists, name) {
						t.Errorf("%s names the %s %s, and there is none", guide, what, name)
					}
				}
			}
			if found == 0 {
				t.Errorf("no guide names any %s: the test looks for the wrong thing", what)
			}
		})
	}
}

// guides are the pages that are written by hand, by their paths. What drivers' pages name is also that of their servers.
func guides(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, path := range append(paths, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	return texts
}

// literalsIn returns all strings in the product's code below the roots.
func literalsIn(t *testing.T, roots ...string) []string {
	t.Helper()
	var found []string
	for _, root := range roots {
		eachNode(t, root, func(node ast.Node) {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					found = append(found, text)
				}
			}
		})
	}
	return found
}
