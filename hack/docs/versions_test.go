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

// TestPinnedVersionsAreOnThePageAndRun: a folder NAME-VERSION of a server stands for a row of the page, and something runs it, since
// nothing but the newest is run by default.
func TestPinnedVersionsAreOnThePageAndRun(t *testing.T) {
	t.Parallel()
	page, err := versionsPage()
	expect.NoError(t, err)
	makefile, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	folders, err := filepath.Glob("../../test/harness/*/servers/*-[0-9]*")
	expect.NoError(t, err)
	if len(folders) < 4 {
		t.Fatalf("found %q: the test looks for the wrong thing", folders)
	}
	for _, folder := range folders {
		name, version, _ := strings.Cut(filepath.Base(folder), "-")
		i := slices.IndexFunc(page.rows, func(row []string) bool {
			return strings.Contains(strings.ToLower(row[0]), name) && minor(row[1]) == version
		})
		if i < 0 {
			t.Errorf("the page has no row of %s: add it to the products", folder)
			continue
		}
		if chosen := strings.ToUpper(name) + "=" + version; page.rows[i][2] == "each night" && !strings.Contains(string(makefile), chosen) {
			t.Errorf("no target of the Makefile runs %s with %s", folder, chosen)
		}
	}
}

// TestPagesPromiseOnlyVersionsThatAreTested: pages leave it to that one to list what is tested, and the oldest version that they ask for
// is one that is tested.
func TestPagesPromiseOnlyVersionsThatAreTested(t *testing.T) {
	t.Parallel()
	names := `(Kubernetes|OpenKruise|Consul|etcd|ZooKeeper|Nacos|Spring Cloud)`
	oldest := regexp.MustCompile(`\b` + names + `\s+(\d+(?:\.\d+)*)\s+(?:or|and)\s+newer`)
	listed := regexp.MustCompile(`(?i)\b(?:proven|tested) (?:on|with)\s+` + names + `\s+\d`)
	chart, err := os.ReadFile("../../charts/rollcall/Chart.yaml")
	expect.NoError(t, err)
	all := pages(t, "../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../charts/rollcall/*.md")
	all["Chart.yaml"] = "Kubernetes " + regexp.MustCompile(`kubeVersion: ">=(\d+\.\d+)`).FindStringSubmatch(string(chart))[1] + " or newer"
	for page, text := range all {
		if strings.Contains(page, "CHANGELOG") {
			continue // it is about versions of its time
		}
		if found := listed.FindString(text); found != "" {
			t.Errorf("%s: %q: link to docs/reference/versions.md instead", page, found)
		}
		for _, match := range oldest.FindAllStringSubmatch(text, -1) {
			if !isTested(t, match[1], match[2]) {
				t.Errorf("%s promises %q, which no test proves", page, strings.Join(strings.Fields(match[0]), " "))
			}
		}
	}
}

func isTested(t *testing.T, name, wanted string) bool {
	t.Helper()
	for _, p := range products() {
		if !strings.Contains(p.name, name) {
			continue
		}
		versions, err := p.tested()
		expect.NoError(t, err)
		if slices.ContainsFunc(versions, func(v string) bool { return v == wanted || strings.HasPrefix(v, wanted+".") }) {
			return true
		}
	}
	return false
}
