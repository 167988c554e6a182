package main

import (
	"os"
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
