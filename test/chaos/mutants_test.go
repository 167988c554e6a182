package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

// TestMutantsChangeTheCode: where the code has moved on, a mutation must too.
func TestMutantsChangeTheCode(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		source, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Fatal(err)
		}
		mutated, err := m.mutate(string(source))
		if err != nil {
			t.Error(err)
			continue
		}
		if mutated == string(source) {
			t.Errorf("mutant %q is no mutant", m.name)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, mutated, parser.SkipObjectResolution); err != nil {
			t.Errorf("mutant %q: %v", m.name, err)
		}
	}
}

func TestMutateRefusesWhatHasMovedOn(t *testing.T) {
	t.Parallel()
	m := mutant{name: "x", file: "x.go", text: "a", replace: "b"}
	for _, source := range []string{"", "aa"} {
		if got, err := m.mutate(source); err == nil {
			t.Errorf("%q became %q", source, got)
		}
	}
}
