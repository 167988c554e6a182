package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestEveryDriverHasAPageWithItsOptions(t *testing.T) {
	t.Parallel()
	folders := 0
	eachNode(t, "../../internal/drivers/drivers.go", func(node ast.Node) {
		path, ok := node.(*ast.ImportSpec)
		if !ok {
			return
		}
		_, name, ok := strings.Cut(strings.Trim(path.Path.Value, `"`), "/registry/")
		if !ok {
			return
		}
		folders++
		page, err := os.ReadFile(filepath.Join(driverPages, name+".md"))
		if err != nil {
			t.Errorf("driver %s: %v", name, err)
		} else if want := optionsBegin + "registry/" + name + " -->\n"; !strings.Contains(string(page), want) {
			t.Errorf("the page of driver %s has no line %q", name, want)
		}
	})
	if folders == 0 {
		t.Error("found no driver among the manager's")
	}
}

func TestAnOptionThatTheReaderCannotUse(t *testing.T) {
	t.Parallel()
	type row struct{ reason, field, want string }
	expect.Each(t, map[string]row{
		"no comment":     {"the table would say nothing", "A string `json:\"a\"`", "A: write its comment as"},
		"no default":     {"a reader could not leave it out", "// A is a.\nA string `json:\"a\"`", "A: write its comment as"},
		"another's name": {"the comment went stale in a renaming", "// B is a. Default: x.\nA string `json:\"a\"`", "A: write its comment as"},
		"no name":        {"the configuration's name is not Go's", "// A is a. Default: x.\nA string", "A: write its JSON name"},
		"an odd type":    {"JSON would have it in nanoseconds", "// A is a. Default: x.\nA time.Duration `json:\"a\"`", "A: its type has no name"},
		"embedded":       {"its fields would be lost", "Base", "write each with one name"},
		"two in one":     {"one comment can't be both's", "// A is a. Default: x.\nA, B string `json:\"a\"`", "write each with one name"},
	}, func(t *testing.T, test row) {
		file, err := parser.ParseFile(token.NewFileSet(), "acme.go", "package acme\ntype Options struct {\n"+test.field+"\n}\n", parser.ParseComments)
		expect.NoError(t, err)
		types := packageTypes{}
		types.add(file)
		_, err = types.options()
		expect.Error(t, test.reason, err, test.want)
	})
}

func TestAPageIsFilledBetweenItsMarks(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- options: registry/acme -->\n", "<!-- /options -->\n"
	fill := func(folder string) (string, error) {
		if folder != "registry/acme" {
			return "", errors.New("asked for " + folder)
		}
		return "NEW\n", nil
	}
	const filled = "# A\n\n" + begin + "\nNEW\n\n" + end + "\nmore\n"
	type row struct{ reason, page, want, err string }
	expect.Each(t, map[string]row{
		"empty":       {"a new page", "# A\n\n" + begin + end + "\nmore\n", filled, ""},
		"old":         {"what was there is replaced", "# A\n\n" + begin + "old\n\nold\n" + end + "\nmore\n", filled, ""},
		"filled":      {"doing it again changes nothing", filled, filled, ""},
		"no marks":    {"a page may do without", "# A\n", "# A\n", ""},
		"not closed":  {"the rest of the page would be lost", "# A\n" + begin + "more\n", "", "each time both"},
		"not opened":  {"it says where nothing begins", "# A\n" + end, "", "each time both"},
		"opened anew": {"one of them was not closed", begin + begin + end, "", "each time both"},
		"no driver":   {"a typo in the folder", "<!-- options: registry/acne -->\n" + end, "", "asked for registry/acne"},
	}, func(t *testing.T, test row) {
		got, err := withOptions(test.page, fill)
		expect.Error(t, test.reason, err, test.err)
		expect.Equal(t, test.want, got, "%s", test.reason)
	})
}

func TestAFolderWithoutCodeIsAnError(t *testing.T) {
	t.Parallel()
	_, err := optionsOf("registry/acne")
	expect.Error(t, "a typo", err, "no Go code")
}
