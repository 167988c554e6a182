package reason

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// declared returns all reasons, as reason.go declares them.
func declared(t *testing.T) (all []Reason) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, parser.SkipObjectResolution)
	expect.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if text, ok := spec.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
			name, err := strconv.Unquote(text.Value)
			expect.NoError(t, err)
			all = append(all, Reason(name))
		}
		return true
	})
	return all
}

// described has a kind in words, for docs/architecture.md.
func (k kind) described() string {
	event := map[string]string{"": "none", "Normal": "Normal", "Warning": "Warning"}[k.event]
	if k.late {
		event += ", after 10 min"
	}
	ends := "the manager's next look"
	switch {
	case k.momentary:
		ends = "it has happened, and does not last"
	case k.unasked:
		ends = "a turn: the registry was not asked yet"
	case k.answered:
		ends = "another call"
	}
	proceeds := "no"
	if k.registry {
		proceeds = "yes"
	}
	return fmt.Sprintf("%s | %s | %s", event, ends, proceeds)
}

// TestKinds holds docs/architecture.md against the table of reasons.
func TestKinds(t *testing.T) {
	t.Parallel()
	alike := map[string][]string{}
	for _, r := range declared(t) {
		if r != "" {
			alike[r.kind().described()] = append(alike[r.kind().described()], string(r))
		}
	}
	if len(alike) < 5 {
		t.Fatalf("%d kinds were found: the test looks for the wrong thing", len(alike))
	}
	var lines []string
	for of, names := range alike {
		slices.Sort(names)
		lines = append(lines, fmt.Sprintf("| %s | %s |\n", strings.Join(names, ", "), of))
	}
	slices.Sort(lines)
	docs, err := os.ReadFile("../../docs/architecture.md")
	expect.NoError(t, err)
	if table := strings.Join(lines, ""); !strings.Contains(string(docs), table) {
		t.Errorf("docs/architecture.md lacks the table of reasons as it is:\n%s", table)
	}
}
