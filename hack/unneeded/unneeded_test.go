package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUnneeded breaks the conditions of a small module with tests for some of them.
func TestUnneeded(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/room\n\ngo 1.26\n",
		"room.go": `package room

func sign(n int) string {
	switch {
	case n < 0:
		return "less"
	case n > 0 && n < 100:
		return "more"
	}
	return "other"
}
`,
		"room_test.go": `package room

import "testing"

func TestSign(t *testing.T) {
	if sign(-1) != "less" || sign(1) != "more" || sign(0) == "more" {
		t.Error("wrong")
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out strings.Builder
	if err := run(t.Context(), &out, []string{"."}, nil, time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"3 conditions", "room.go:7: n < 100\n\tis always true in tests",
		"broken: 6. Noticed by tests beside them: 5, by others: 0. Not noticed: 0. Never otherwise in tests: 1.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}
