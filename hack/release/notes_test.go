package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2027-01-10\n\n## [0.1.0] - 2026-12-01\n\nOne.\n\n### Limits\n\nTwo.\n\n" +
		"[Unreleased]: https://example.com\n"
	for name, tc := range map[string]struct{ reason, version, want, err string }{
		"a release":     {"what is below its heading", "v0.1.0", "One.\n\n### Limits\n\nTwo.\n", ""},
		"a candidate":   {"it has the text of the release", "v0.1.0-rc.1", "One.\n\n### Limits\n\nTwo.\n", ""},
		"not written":   {"users would not know what it brings", "v0.3.0", "", `no section "## [0.3.0]"`},
		"empty":         {"the same", "v0.2.0", "", "empty section ## [0.2.0]"},
		"not the next":  {"0.1 is not 0.10", "v0.1.00", "", "no section"},
		"no older text": {"the heading is above, and not in the text", "v1", "", "no section"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sectionOf(changelog, tc.version)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %q, %v, want %q, %s\nreason: %s", got, err, tc.want, tc.err, tc.reason)
			}
		})
	}
}

// TestNotesAreShort: people read release notes of a page.
func TestNotesAreShort(t *testing.T) {
	t.Parallel()
	const most = 60
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := sectionOf(string(changelog), "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(text, "\n"); lines > most {
		t.Errorf("the section of 0.1.0 has %d lines, want at most %d", lines, most)
	}
}

// TestNotReleasedYet: the pages on which a stranger begins say that there is nothing to download, and no release is made until none does.
func TestNotReleasedYet(t *testing.T) {
	t.Parallel()
	const root = "../.."
	pages, err := notReleasedYet(root)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{
		"CHANGELOG.md", "README.md", "README.zh-CN.md", "docs/install.md", "docs/kubectl-plugin.md", "docs/quickstart.zh-CN.md",
		"charts/rollcall/README.md",
	}
	if len(pages) > 0 && !slices.Equal(pages, all) {
		t.Errorf("%v say that it is not released yet, want all of %v or none", pages, all)
	}
	if err := (release{version: "v0.1.0"}).isAnnounced(root); (err == nil) != (len(pages) == 0) {
		t.Errorf("the release: got error %v, want one as long as pages say that it is not released yet: %v", err, pages)
	}
	if err := (release{version: "v0.1.0-rc.1"}).isAnnounced(root); err != nil {
		t.Errorf("a candidate: got error %v, want none", err)
	}
}
