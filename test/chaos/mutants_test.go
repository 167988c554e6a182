package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func mutants() []mutant {
	var all []mutant
	for _, t := range trials() {
		all = append(all, t.mutants...)
	}
	return all
}

// known are the things that chaos can say.
func known() []string { return append(ruleNames(), string(lost), string(leaked), string(stuck)) }

// TestMutantsCompile finds a function that was renamed or has other parameters now, before a mutant of it is played.
func TestMutantsCompile(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	expect.NoError(t, err)
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			overlay, err := m.overlay(root, filepath.Join(t.TempDir(), "mutant"))
			expect.NoError(t, err)
			// Go writes nothing for a package that is no command.
			build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay="+overlay, "./"+m.dir)
			build.Dir = root
			build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds the manager, so that its packages are there
			if output, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go":      "package x\n\nfunc plain(n int) int { return n + 1 }\n",
		"b.go":      "package x\n\ntype T struct{}\n\nfunc (t *T) plain() {}\n\nfunc (T) unnamed() {}\n",
		"c_test.go": "package x\n\nfunc tested() {}\n",
	} {
		expect.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, tc := range []struct{ function, file, kept, added, err string }{
		{
			function: "plain", file: "a.go", kept: "func plainBeforeOverride(n int) int { return n + 1 }",
			added: "func plain(n int) int {\noriginal := plainBeforeOverride\n",
		},
		{
			function: "(*T).plain", file: "b.go", kept: "func (t *T) plainBeforeOverride() {}",
			added: "func (t *T) plain() {\noriginal := t.plainBeforeOverride\n",
		},
		{function: "T.unnamed", err: "give it one"},
		{function: "T.plain", err: "has no function T.plain"},
		{function: "tested", err: "has no function tested"},
	} {
		file, text, err := override{dir: "x", function: tc.function, body: "return 7"}.apply(dir)
		if tc.err != "" {
			expect.Error(t, tc.function, err, tc.err)
			continue
		}
		if err != nil || filepath.Base(file) != tc.file || !strings.Contains(string(text), tc.kept) ||
			!strings.Contains(string(text), tc.added+"_ = original\nreturn 7\n}") {
			t.Errorf("%s: got %s, %v:\n%s", tc.function, file, err, text)
		}
	}
}

func TestChosenTrials(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": len(mutants()), "resync": 1, "acknowledgement": 2, "resync,acknowledgement": 3, oneOfEach: len(known())} {
		chosen, err := chosenTrials(text)
		got := 0
		for _, t := range chosen {
			got += len(t.mutants)
		}
		if err != nil || got != want {
			t.Errorf("MUTANT=%s: %d mutants, %v, want %d", text, got, err, want)
		}
	}
	_, err := chosenTrials("rsync")
	expect.Error(t, "what plays nothing must not pass, and say what there is", err, "no resync")
}

func TestMutantsAreFoundForTheirReason(t *testing.T) {
	t.Parallel()
	m := mutant{name: "x", finds: []string{"I1", "weight", "lost"}, says: "x"}
	for _, tc := range []struct {
		name  string
		wrong *report
		found bool
	}{
		{"nothing", &report{}, false},
		{"another invariant", &report{seen: []finding{{text: "I3: handler x"}}}, false},
		{"a manager that can't be started", &report{other: []string{"I1"}}, false},
		{"its invariant, for another reason", &report{seen: []finding{{text: "I1: hook y"}}}, false},
		{"its invariant", &report{seen: []finding{{text: "I3: handler x"}, {text: "I1: hook x"}}}, true},
		{"what it loses", &report{found: []finding{{kind: lost, text: "pod x: lost"}}}, true},
		{"a rule of the calm", &report{found: []finding{{kind: wrong, text: "weight: of x"}}}, true},
	} {
		if err := m.unlike(tc.wrong.all()); (err == nil) != tc.found {
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
			t.Errorf("mutant %q finds %v: chaos never says that", m.name, m.finds)
		}
	}
}
