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

// TestVersionsAreThoseThatAreTested: the README lists the versions of OpenKruise and Kubernetes that the targets run all scenarios on,
// and no others.
func TestVersionsAreThoseThatAreTested(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	expect.NoError(t, err)
	for _, row := range []string{
		"| OpenKruise | " + pinned(t, "kruise*", `github\.com/openkruise/kruise`) + ": all scenarios |",
		"| Kubernetes | " + pinned(t, "kubernetes-*", `k8s\.io/kubernetes`) + ": all scenarios |",
	} {
		if !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks the row %s", row)
		}
	}
}

// pinned are the versions of a module in folders of the test cluster's servers.
func pinned(t *testing.T, folders, module string) string {
	t.Helper()
	files, err := filepath.Glob("../../test/harness/cluster/servers/" + folders + "/go.mod")
	expect.NoError(t, err)
	version := regexp.MustCompile(module + ` v(\S+)`)
	var versions []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		versions = append(versions, version.FindStringSubmatch(string(text))[1])
	}
	slices.Sort(versions)
	return strings.Join(versions, ", ")
}
