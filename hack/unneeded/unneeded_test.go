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

func Sign(n int) string {
	switch {
	case n < 0:
		return "less"
	case n > 0 && n < 100:
		return "more"
	case n == 0 && n < 1000:
		return "nothing"
	}
	return "other"
}
`,
		"room_test.go": `package room

import "testing"

func TestSign(t *testing.T) {
	if Sign(-1) != "less" || Sign(1) != "more" || Sign(0) == "more" {
		t.Error("wrong")
	}
}
`,
		"other/other_test.go": `package other

import (
	"testing"

	"example.com/room"
)

func TestMuch(t *testing.T) {
	if room.Sign(100) != "other" {
		t.Error("wrong")
	}
}
`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out strings.Builder
	if err := run(t.Context(), &out, []string{"."}, []string{"./other"}, time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"5 conditions", "room.go:7: n < 100\n\tif always true, is noticed by TestMuch of ./other",
		"room.go:9: n < 1000\n\tis always true in tests",
		"broken: 10. Noticed by tests beside them: 5, by others: 2. Not noticed: 2. Never otherwise in tests: 1.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}
