package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// condition is one that can be broken, by its index.
type condition struct {
	dir, file string
	line      int
	text      string
	loops     bool // it is a for's, and would not end if it were always true
}

func (c condition) String() string { return fmt.Sprintf("%s:%d: %s", c.file, c.line, c.text) }

// insertion is text at an offset. What ends there comes before what begins.
type insertion struct {
	at     int
	text   string
	begins bool
	width  int // of the condition
}

// instrument writes the packages' files with each condition in a call, and returns the overlay for the go command.
func instrument(folder string, dirs []string) (overlay string, all []condition, err error) {
	replace := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return "", nil, fmt.Errorf("looking for files: %w", err)
		}
		name := ""
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return "", nil, fmt.Errorf("reading a file: %w", err)
			}
			var changed []byte
			if changed, name, all, err = instrumented(dir, file, text, all); err != nil {
				return "", nil, err
			}
			if err := put(folder, replace, file, changed); err != nil {
				return "", nil, err
			}
		}
		if name == "" {
			return "", nil, fmt.Errorf("%s: there is no Go file", dir)
		}
		if err := put(folder, replace, filepath.Join(dir, "unneeded_generated.go"), []byte("package "+name+runtime)); err != nil {
			return "", nil, err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, fmt.Errorf("encoding the overlay: %w", err)
	}
	overlay = filepath.Join(folder, "overlay.json")
	return overlay, all, write(overlay, text)
}

func put(folder string, replace map[string]string, file string, text []byte) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("naming a file: %w", err)
	}
	replace[path] = filepath.Join(folder, fmt.Sprintf("%d.go", len(replace)))
	return write(replace[path], text)
}

func write(file string, text []byte) error {
	if err := os.WriteFile(file, text, 0o600); err != nil { //nolint:gosec // a folder of this process
		return fmt.Errorf("writing a file: %w", err)
	}
	return nil
}

// instrumented adds the conditions of a file to those before.
func instrumented(dir, file string, text []byte, before []condition) (changed []byte, name string, all []condition, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, "", nil, fmt.Errorf("parsing: %w", err)
	}
	var insertions []insertion
	all = before
	for _, e := range conditionsOf(parsed) {
		from, to := set.Position(e.node.Pos()), set.Position(e.node.End())
		insertions = append(insertions,
			insertion{from.Offset, fmt.Sprintf("unneeded_(%d, ", len(all)), true, to.Offset - from.Offset},
			insertion{to.Offset, ")", false, to.Offset - from.Offset})
		all = append(all, condition{dir, file, from.Line, strings.Join(strings.Fields(string(text[from.Offset:to.Offset])), " "), e.loops})
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.begins != b.begins && a.begins:
			return 1
		case a.begins != b.begins:
			return -1
		case a.begins:
			return b.width - a.width // the outer one first
		default:
			return a.width - b.width
		}
	})
	var b bytes.Buffer
	at := 0
	for _, in := range insertions {
		b.Write(text[at:in.at])
		b.WriteString(in.text)
		at = in.at
	}
	b.Write(text[at:])
	return b.Bytes(), parsed.Name.Name, all, nil
}

type found struct {
	node  ast.Expr
	loops bool
}

// conditionsOf returns the parts of conditions that have no parts themselves.
func conditionsOf(file *ast.File) (all []found) {
	seen := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if n, ok := n.(*ast.GenDecl); ok && n.Tok == token.CONST {
			return false
		}
		_, loops := n.(*ast.ForStmt)
		for _, e := range askedBy(n) {
			for _, part := range partsOf(e) {
				if !seen[part] {
					seen[part], all = true, append(all, found{part, loops})
				}
			}
		}
		return true
	})
	return all
}

// askedBy returns the conditions of a statement, or the expression itself if it is one.
func askedBy(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.IfStmt:
		return []ast.Expr{n.Cond}
	case *ast.ForStmt:
		if n.Cond != nil {
			return []ast.Expr{n.Cond}
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			return casesOf(n)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			return []ast.Expr{n}
		}
	case *ast.BinaryExpr:
		if asks(n.Op) {
			return []ast.Expr{n}
		}
	}
	return nil
}

func casesOf(n *ast.SwitchStmt) (all []ast.Expr) {
	for _, one := range n.Body.List {
		if clause, ok := one.(*ast.CaseClause); ok {
			all = append(all, clause.List...)
		}
	}
	return all
}

func partsOf(e ast.Expr) []ast.Expr {
	switch part := e.(type) {
	case *ast.ParenExpr:
		return partsOf(part.X)
	case *ast.UnaryExpr:
		return partsOf(part.X)
	case *ast.BinaryExpr:
		if part.Op == token.LAND || part.Op == token.LOR {
			return append(partsOf(part.X), partsOf(part.Y)...)
		}
	}
	return []ast.Expr{e}
}

func asks(op token.Token) bool {
	return slices.Contains([]token.Token{
		token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ,
	}, op)
}

// runtime is what an instrumented package has in addition. UNNEEDED_REACH is a file for what is reached, a line for each condition and
// answer, and UNNEEDED_BREAK the condition to break and what it answers.
const runtime = `

import (
	"fmt"
	"os"
	"sync"
)

var unneededReached_ sync.Map

var unneededFile_ = func() *os.File {
	f, _ := os.OpenFile(os.Getenv("UNNEEDED_REACH"), os.O_APPEND|os.O_WRONLY, 0)
	return f
}()

var unneededBroken_, unneededTo_ = func() (id int, to bool) {
	if _, err := fmt.Sscanf(os.Getenv("UNNEEDED_BREAK"), "%d %t", &id, &to); err != nil {
		return -1, false
	}
	return id, to
}()

func unneeded_[B ~bool](id int, is B) B {
	if unneededFile_ != nil {
		line := fmt.Sprintf("%d %t\n", id, is)
		if _, known := unneededReached_.LoadOrStore(line, true); !known {
			_, _ = unneededFile_.WriteString(line)
		}
	}
	if id == unneededBroken_ {
		return B(unneededTo_)
	}
	return is
}
`
