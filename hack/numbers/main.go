// Numbers counts what somebody must hold in mind to change a rule of the engine: for each package its lines, its branches and its largest
// type, and for each rule in rules.txt the names that its functions use. And what a user may have to know: names, flags, keys, options,
// reasons, metrics and commands, as the pages list them.
//
//	go run ./hack/numbers
package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

//go:embed rules.txt
var rules string

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "numbers: "+err.Error())
		os.Exit(1)
	}
}

// engine are the packages that decide about a pod and call registries for it.
func engine() []string {
	return []string{"lifecycle", "plan", "visit", "tracker", "observe", "report", "reason", "waiting", "memory", "controller"}
}

func run(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) //nolint:mnd // spaces between columns
	fmt.Fprintln(table, "package\tlines\tbranches per 100\tlargest type\tits methods\ttests beside it")
	house := &rooms{functions: map[string]*ast.FuncDecl{}, files: map[string]string{}, names: map[string]bool{}}
	for _, name := range engine() {
		r, err := house.read(name)
		if err != nil {
			return err
		}
		per100 := 100 * float64(r.branches) / float64(r.lines)
		fmt.Fprintf(table, "%s\t%d\t%.1f\t%s\t%d\t%d\n", name, r.lines, per100, r.largest, r.methods[r.largest], r.tests)
	}
	fmt.Fprintln(table, "\nrule\tnames\tfiles")
	for line := range strings.Lines(rules) {
		rule, functions, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found {
			continue
		}
		names, files, err := house.concepts(strings.Fields(functions))
		if err != nil {
			return fmt.Errorf("rule %s: %w", rule, err)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\n", rule, names, files)
	}
	if err := countSurface(table); err != nil {
		return err
	}
	return table.Flush() //nolint:wrapcheck // of a writer of ours
}

// rooms are the engine's packages.
type rooms struct {
	functions map[string]*ast.FuncDecl // by package.Name or package.Type.Name
	files     map[string]string
	names     map[string]bool // all that is declared
}

type room struct {
	lines, branches, tests int
	methods                map[string]int
	largest                string
}

func (h *rooms) read(name string) (room, error) {
	r := room{methods: map[string]int{}}
	files, err := filepath.Glob(filepath.Join("internal", name, "*.go"))
	if err != nil || len(files) == 0 {
		return r, fmt.Errorf("there is no package internal/%s here: run it at the top of the repository", name)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return r, fmt.Errorf("reading: %w", err)
		}
		if strings.HasSuffix(file, "_test.go") {
			r.tests += linesOf(text)
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return r, fmt.Errorf("parsing: %w", err)
		}
		r.lines += linesOf(text)
		r.branches += branchesOf(parsed)
		h.declare(name, file, parsed, r.methods)
	}
	for _, of := range slices.Sorted(maps.Keys(r.methods)) {
		if r.largest == "" || r.methods[of] > r.methods[r.largest] {
			r.largest = of
		}
	}
	return r, nil
}

// linesOf counts lines with more than white space.
func linesOf(text []byte) (n int) {
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) != "" {
			n++
		}
	}
	return n
}

func branchesOf(of ast.Node) (n int) {
	ast.Inspect(of, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause, *ast.CommClause:
			n++
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func (h *rooms) declare(name, path string, file *ast.File, methods map[string]int) {
	for _, one := range file.Decls {
		switch one := one.(type) {
		case *ast.FuncDecl:
			full := name + "." + one.Name.Name
			if one.Recv != nil {
				of := receiver(one.Recv.List[0].Type)
				methods[of]++
				full = name + "." + of + "." + one.Name.Name
			}
			h.functions[full], h.files[full], h.names[one.Name.Name] = one, path, true
		case *ast.GenDecl:
			ast.Inspect(one, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					h.names[n.Name.Name] = true
				case *ast.ValueSpec:
					for _, id := range n.Names {
						h.names[id.Name] = true
					}
				case *ast.Field:
					for _, id := range n.Names {
						h.names[id.Name] = true
					}
				}
				return true
			})
		}
	}
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// concepts counts the engine's names that the functions use, and the files that they are in.
func (h *rooms) concepts(functions []string) (names, files int, err error) {
	used, in := map[string]bool{}, map[string]bool{}
	for _, name := range functions {
		f := h.functions[name]
		if f == nil {
			return 0, 0, fmt.Errorf("there is no function %s any more: correct hack/numbers/rules.txt", name)
		}
		in[h.files[name]] = true
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && h.names[id.Name] && len(id.Name) > 1 {
				used[id.Name] = true
			}
			return true
		})
	}
	return len(used), len(in), nil
}
