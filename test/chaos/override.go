package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// override gives a function of the product another body. The function is found by its name, in whichever file of its package
// it stands, so that what is around it may change.
type override struct {
	// dir is the folder of the package, such as internal/lifecycle.
	dir string
	// function is a function's name, or a method's as Go prints it: Patch, (*keeper).reap.
	function string
	// body replaces what the function does. It knows the parameters, the results and the receiver by their names, and calls
	// the function as it was by the name original.
	body string
}

// originalSuffix ends the name under which the function as it was is kept.
const originalSuffix = "BeforeOverride"

// overlay writes what go build -overlay takes, into files whose names begin with prefix.
func (o override) overlay(root, prefix string) (path string, err error) {
	file, text, err := o.apply(filepath.Join(root, filepath.FromSlash(o.dir)))
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: prefix + ".go"}})
	if err != nil {
		return "", fmt.Errorf("overriding %s: %w", o.function, err)
	}
	for path, data := range map[string][]byte{prefix + ".go": text, prefix + ".json": overlay} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return "", fmt.Errorf("overriding %s: %w", o.function, err)
		}
	}
	return prefix + ".json", nil
}

// apply returns the one file of the package that has the function, and its text with the other body.
func (o override) apply(dir string) (file string, text []byte, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", nil, fmt.Errorf("looking for %s: %w", o.function, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return "", nil, fmt.Errorf("looking for %s: %w", o.function, err)
		}
		text, err := o.in(source)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, text, err
		}
	}
	return "", nil, fmt.Errorf("%s has no function %s: name the one that does this now in test/chaos/mutants.go",
		o.dir, o.function)
}

// in returns the source with the other body, or [fs.ErrNotExist] where the function is not in it.
func (o override) in(source []byte) ([]byte, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", o.function, err)
	}
	i := slices.IndexFunc(parsed.Decls, func(d ast.Decl) bool {
		function, is := d.(*ast.FuncDecl)
		return is && nameOf(function) == o.function
	})
	if i < 0 {
		return nil, fs.ErrNotExist
	}
	function := parsed.Decls[i].(*ast.FuncDecl) //nolint:forcetypeassert // IndexFunc has looked
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	original := function.Name.Name + originalSuffix
	if function.Recv != nil {
		receiver := function.Recv.List[0].Names
		if len(receiver) == 0 {
			return nil, fmt.Errorf("the receiver of %s has no name: give it one, so that the function can be called", o.function)
		}
		original = receiver[0].Name + "." + original
	}
	signature := source[at(function.Pos()):at(function.Body.Pos())]
	return slices.Concat(
		source[:at(function.Name.End())], []byte(originalSuffix), source[at(function.Name.End()):],
		fmt.Appendf(nil, "\n%s{\noriginal := %s\n_ = original\n%s\n}\n", signature, original, o.body),
	), nil
}

// nameOf is the name of a function, or of a method as Go prints it.
func nameOf(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return function.Name.Name
	}
	switch receiver := function.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return fmt.Sprintf("(*%s).%s", receiver.X, function.Name.Name)
	default:
		return fmt.Sprintf("%s.%s", receiver, function.Name.Name)
	}
}
