package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutants are those of all trials.
func mutants() []mutant {
	var all []mutant
	for _, t := range trials() {
		all = append(all, t.mutants...)
	}
	return all
}

// known are the things that chaos can say.
func known() []string { return []string{"I1", "I2", "I3", "I9", "lost", "leaked", "stuck"} }

// TestMutantsCompile: where the code has moved on, a mutation must too, and not when somebody plays it.
func TestMutantsCompile(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			overlay, err := m.overlay(t.Context(), filepath.Join(t.TempDir(), "mutant"))
			if err != nil {
				t.Fatal(err)
			}
			// Of a package that is no command nothing is written.
			build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay="+overlay, "./"+path.Dir(m.file))
			build.Dir = filepath.Join("..", "..")
			build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds the manager, so that its packages are there
			if output, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
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

func TestChosenTrials(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": len(mutants()), "resync": 1, "acknowledgement": 2, oneOfEach: len(known())} {
		chosen, err := chosenTrials(text)
		got := 0
		for _, t := range chosen {
			got += len(t.mutants)
		}
		if err != nil || got != want {
			t.Errorf("MUTANT=%s: %d mutants, %v, want %d", text, got, err, want)
		}
	}
	if _, err := chosenTrials("rsync"); err == nil || !strings.Contains(err.Error(), "no resync") {
		t.Errorf("MUTANT=rsync: %v: what plays nothing must not pass, and say what there is", err)
	}
}

func TestMutantsAreFoundForTheirReason(t *testing.T) {
	t.Parallel()
	m := mutant{name: "x", finds: []string{"I1", "lost"}}
	for _, tc := range []struct {
		name  string
		wrong *report
		found bool
	}{
		{"nothing", &report{}, false},
		{"another invariant", &report{seen: []violation{{text: "I3: handler x"}}}, false},
		{"a manager that can't be started", &report{other: []string{"I1"}}, false},
		{"its invariant", &report{seen: []violation{{text: "I3: handler x"}, {text: "I1: hook x"}}}, true},
		{"what it loses", &report{found: []finding{{kind: lost}}}, true},
	} {
		if err := m.unlike(tc.wrong.kinds()); (err == nil) != tc.found {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, word := range known() {
		if !slices.ContainsFunc(mutants(), func(m mutant) bool { return slices.Contains(m.finds, word) }) {
			t.Errorf("no mutant proves that chaos can say %s", word)
		}
	}
	for _, m := range mutants() {
		if len(m.finds) == 0 || slices.ContainsFunc(m.finds, func(s string) bool { return !slices.Contains(known(), s) }) {
			t.Errorf("mutant %q finds %v: nobody says so", m.name, m.finds)
		}
	}
}
