package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestEveryMetricOfTheProductHasARow(t *testing.T) {
	t.Parallel()
	page, err := metricsPage()
	expect.NoError(t, err)
	found := 0
	for _, root := range []string{"../../internal", "../../cmd"} {
		eachNode(t, root, func(node ast.Node) {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return
			}
			name, err := strconv.Unquote(literal.Value)
			if err != nil || !strings.HasPrefix(name, "rollcall_") {
				return
			}
			found++
			expectRow(t, page, code(name))
		})
	}
	if found != len(page.rows) {
		t.Errorf("the code names %d metrics, the page has %d", found, len(page.rows))
	}
}

// TestEveryReasonIsUsedAndHasAHeading: the kubectl plugin and the status page link to a reason by its name in small letters, which is the
// anchor of its heading.
func TestEveryReasonIsUsedAndHasAHeading(t *testing.T) {
	t.Parallel()
	page, _, err := reasonsPage()
	expect.NoError(t, err)
	used := map[string]bool{}
	eachNode(t, "../../internal", func(node ast.Node) {
		if name, ok := node.(*ast.SelectorExpr); ok && !slices.Contains([]string{"Docs", "Reason", "EventRepeat", "Patience", "WithoutRemedy"}, name.Sel.Name) {
			if of, ok := name.X.(*ast.Ident); ok && of.Name == "reason" {
				used[name.Sel.Name] = true
			}
		}
	})
	for reason := range used {
		if want := "\n### " + reason + "\n"; strings.Count(page, want) != 1 {
			t.Errorf("the page has not once %q", want)
		}
	}
	if got := strings.Count(page, "\n### "); len(used) != got {
		t.Errorf("the code uses %d reasons, the page has %d", len(used), got)
	}
}

// TestReasonsInChinese: the translation has the same reasons in the same groups. Links and words are its own.
func TestReasonsInChinese(t *testing.T) {
	t.Parallel()
	page, _, err := reasonsPage()
	expect.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(reference, "reasons.zh-CN.md"))
	expect.NoError(t, err)
	expect.Equal(t, strings.Join(headingsOf(page), "\n"), strings.Join(headingsOf(string(text)), "\n"), "reasons and groups of reasons.zh-CN.md")
}

// headingsOf returns the reasons of a page, with a line for the beginning of each group.
func headingsOf(page string) (all []string) {
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "## "):
			all = append(all, "##")
		case strings.HasPrefix(line, "### "):
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func TestEveryFlagSaysWhatItMeans(t *testing.T) {
	t.Parallel()
	page := flagsPage()
	expectRow(t, page, "`--config file`")
	for _, row := range page.rows {
		if row[2] == "" {
			t.Errorf("%s has no usage text", row[0])
		}
	}
}

func TestAConstantThatTheReaderCannotUse(t *testing.T) {
	t.Parallel()
	type row struct{ reason, source, want string }
	expect.Each(t, map[string]row{
		"no comment":       {"the page would say nothing", "const A Reason = \"A\"", "write its comment as"},
		"nothing to do":    {"a reader would be left alone", "const (\n// A: is bad.\nA Reason = \"A\"\n)", "write its comment as"},
		"another's name":   {"the comment went stale in a renaming", "const (\n// B: x.\n//\n// What to do: y.\nA Reason = \"A\"\n)", "write its comment as"},
		"a computed value": {"the page needs the text", "const (\n// A: x. What to do: y.\nA Reason = \"A\" + \"B\"\n)", "write its value as a string"},
	}, func(t *testing.T, test row) {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package x\n"+test.source, parser.ParseComments)
		expect.NoError(t, err)
		spec := file.Decls[0].(*ast.GenDecl).Specs[0].(*ast.ValueSpec)
		_, err = readReason(spec)
		expect.Error(t, test.reason, err, test.want)
	})
}

func expectRow(t *testing.T, p page, first string) {
	t.Helper()
	for _, row := range p.rows {
		if row[0] == first {
			return
		}
	}
	t.Errorf("%q has no row for %s", p.title, first)
}

// eachNode walks the product's code below root, without its tests.
func eachNode(t *testing.T, root string, see func(ast.Node)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for node := range ast.Preorder(file) {
			see(node)
		}
		return nil
	})
	expect.NoError(t, err)
}
