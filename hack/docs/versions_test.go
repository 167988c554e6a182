package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestVersionsAreThoseThatAreTested: the README names the OpenKruises that the targets run all scenarios on, and no others.
func TestVersionsAreThoseThatAreTested(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("../../test/harness/cluster/servers/kruise*/go.mod")
	expect.NoError(t, err)
	pinned := regexp.MustCompile(`github\.com/openkruise/kruise v(\S+)`)
	var want []string
	for _, module := range modules {
		text, err := os.ReadFile(module)
		expect.NoError(t, err)
		want = append(want, pinned.FindStringSubmatch(string(text))[1])
	}
	slices.Sort(want)
	readme, err := os.ReadFile("../../README.md")
	expect.NoError(t, err)
	if row := "| OpenKruise | " + strings.Join(want, ", ") + ": all scenarios |"; !strings.Contains(string(readme), row) {
		t.Errorf("README.md lacks the row %s", row)
	}
}
