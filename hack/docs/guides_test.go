package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/rollcall-dev/rollcall/internal/plugin"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestGuidesNameWhatExists looks up each metric, reason, flag, annotation and make target that a guide names. Other tests
// check that the reference is complete.
func TestGuidesNameWhatExists(t *testing.T) {
	t.Parallel()
	literals := literalsIn(t, "../../internal", "../../cmd", "../../registry")
	var flags []string
	for _, row := range flagsPage().rows {
		name, _, _ := strings.Cut(strings.Trim(row[0], "`"), " ")
		flags = append(flags, name)
	}
	flags = append(flags, pluginFlags(t)...)
	annotation := regexp.MustCompile(`\b(rollcall\.dev/[a-z-]*[a-z])\b`)
	var inChart []string
	for _, text := range pages(t, "../../charts/rollcall/templates/*.yaml") {
		inChart = append(inChart, annotation.FindAllString(text, -1)...)
	}
	for what, look := range map[string]struct {
		named  *regexp.Regexp
		exists []string
	}{
		"metric":     {regexp.MustCompile(`\b(rollcall_[a-z_]+?)(?:_bucket|_sum|_count)?\b`), literals},
		"reason":     {regexp.MustCompile("(?:Warning |gets a |\\()`((?:[A-Z][a-z]+){2,})`|reason=\"([A-Za-z]+)\""), literals},
		"flag":       {regexp.MustCompile("`(--[a-z][a-z-]+)[` =]"), append(flags, "--help")},
		"annotation": {annotation, append(literals, inChart...)},
		"target":     {regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9-]+)"), targets(t)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			found := 0
			for guide, text := range pages(t, "../../*.md", "../../docs/*.md", "../../docs/adr/*.md") {
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

// pluginFlags are those that the help of the kubectl plugin's commands shows.
func pluginFlags(t *testing.T) []string {
	t.Helper()
	var flags []string
	for _, command := range plugin.Command().Commands() {
		status, help := helpOf(t, command.Name())
		if status != 0 {
			t.Fatalf("%s --help: exit status %d\n%s", command.CommandPath(), status, help)
		}
		flags = append(flags, regexp.MustCompile("--[a-z][a-z-]+").FindAllString(help, -1)...)
	}
	return flags
}

// helpOf is what the kubectl plugin says with --help after these arguments.
func helpOf(t *testing.T, arguments string) (status int, help string) {
	t.Helper()
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	status = plugin.Run(t.Context(), "", append(strings.Fields(arguments), "--help"), streams, nil)
	return status, out.String()
}

// TestPathsExist looks up each path of the repository that a guide names.
func TestPathsExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("`((?:cmd|config|docs|hack|internal|registry|test)/[a-z0-9_./-]+)`")
	found := 0
	for guide, text := range pages(t, "../../*.md", "../../docs/*.md", "../../docs/adr/*.md") {
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			found++
			if _, err := os.Stat(filepath.Join("../..", match[1])); err != nil {
				t.Errorf("%s names %s: %v", guide, match[1], err)
			}
		}
	}
	if found == 0 {
		t.Error("no guide names a path: the test looks for the wrong thing")
	}
}

// TestLinksLeadSomewhere follows each relative link, to its file and to its heading.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)\s]+)?\)`)
	found := 0
	for guide, text := range pages(t, "../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../charts/*/*.md") {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			found++
			target := guide
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(guide), match[1])
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s links to %s: %v", guide, match[1], err)
			} else if match[2] != "" && !slices.Contains(anchors(string(content)), match[2]) {
				t.Errorf("%s links to %s%s: there is no such heading", guide, match[1], match[2])
			}
		}
	}
	if found == 0 {
		t.Error("no guide has a link: the test looks for the wrong thing")
	}
}

// TestLinksToTheRepositoryLeadSomewhere follows the links that helm install and the alerts show.
func TestLinksToTheRepositoryLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`https://github\.com/rollcall-dev/rollcall(?:/blob/[^/\s]+/([A-Za-z0-9_/-]+\.md))?(#[a-z-]+)?`)
	for file, text := range pages(t, "../../charts/rollcall/templates/NOTES.txt", "../../charts/rollcall/README.md",
		"../../config/components/prometheus/prometheus_rule.yaml") {
		links := link.FindAllStringSubmatch(text, -1)
		if len(links) == 0 {
			t.Errorf("%s has no link: the test looks for the wrong thing", file)
		}
		for _, match := range links {
			content, err := os.ReadFile(filepath.Join("../..", cmp.Or(match[1], "README.md")))
			expect.NoError(t, err)
			if match[2] != "" && !slices.Contains(anchors(string(content)), match[2]) {
				t.Errorf("%s links to %s: there is no such heading", file, match[0])
			}
		}
	}
}

// TestPagesThatTheProductNamesExist: a message, a comment or a manifest that refers a reader to a page names one that is there.
func TestPagesThatTheProductNamesExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\b(docs/[a-z0-9_/-]+\.md)(#[a-z0-9-]+)?`)
	found := 0
	for _, root := range []string{"cmd", "charts", "config", "hack", "internal", "registry", "test", "Makefile", ".github", ".ci"} {
		expect.NoError(t, filepath.WalkDir(filepath.Join("../..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || entry.Name() == "CHANGELOG.md" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range named.FindAllSubmatch(text, -1) {
				found++
				page, err := os.ReadFile(filepath.Join("../..", string(match[1])))
				if err != nil || len(match[2]) > 0 && !slices.Contains(anchors(string(page)), string(match[2])) {
					t.Errorf("%s names %s: there is no such page or heading", path, match[0])
				}
			}
			return err
		}))
	}
	if found < 100 {
		t.Errorf("found %d pages: the test looks for the wrong thing", found)
	}
}

// anchors are those that GitHub gives the headings of a page.
func anchors(page string) []string {
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		words := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(match[1]), "")
		found = append(found, "#"+strings.ReplaceAll(words, " ", "-"))
	}
	for _, match := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(page, -1) {
		found = append(found, "#"+match[1])
	}
	return found
}

// targets are those of the Makefile.
func targets(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	return found
}

// pages returns the texts of the pages that match, by their paths.
func pages(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			expect.NoError(t, err)
			texts[path] = string(text)
		}
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
