package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
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

// TestNotesLinkToTheVersion: a link of the changelog leads to a file beside it, which the page of a release is not.
func TestNotesLinkToTheVersion(t *testing.T) {
	t.Parallel()
	const docs = "](https://github.com/rollcall-dev/rollcall/blob/v0.1.0-rc.1/"
	for name, tc := range map[string]struct{ reason, text, want string }{
		"pages":      {"they are in the repository", "[a](docs/faq.md)[b](SECURITY.md)", "[a" + docs + "docs/faq.md)[b" + docs + "SECURITY.md)"},
		"a heading":  {"the anchor stays", "[the\n  one](docs/production.md#priority)", "[the\n  one" + docs + "docs/production.md#priority)"},
		"an address": {"it works everywhere", "[a](https://example.com/a.md) and [b](mailto:b@example.com)", ""},
		"an anchor":  {"it is in the notes", "[a](#known-limits)", ""},
		"no link":    {"code has brackets too", "`a[0]` (see b.md)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, want := withAddresses(tc.text, "v0.1.0-rc.1"), cmp.Or(tc.want, tc.text); got != want {
				t.Errorf("got %q, want %q\nreason: %s", got, want, tc.reason)
			}
		})
	}
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := sectionOf(string(changelog), "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(([^)#]*)`).FindAllStringSubmatch(withAddresses(text, "v0.1.0"), -1)
	if len(links) < 10 {
		t.Fatalf("the section of 0.1.0 has %d links: the test looks for the wrong thing", len(links))
	}
	for _, match := range links {
		path, ours := strings.CutPrefix(match[1], repository+"/blob/v0.1.0/")
		if _, err := os.Stat(filepath.Join("../..", path)); ours && err != nil || !ours && !strings.HasPrefix(path, "https://") {
			t.Errorf("the notes of 0.1.0 link to %s, which is not there", match[1])
		}
	}
}

// TestNotesRefuseLinksToAnotherVersion: users of kustomize get what is in config as it is at the tag.
func TestNotesRefuseLinksToAnotherVersion(t *testing.T) {
	t.Parallel()
	const version = "v0.2.0"
	for name, tc := range map[string]struct {
		reason, version, link string
		refused               bool
	}{
		"main":              {"it changes", version, repository + "/blob/main/docs/faq.md", true},
		"the version":       {"that is what users run", version, repository + "/blob/v0.2.0/docs/faq.md", false},
		"one before":        {"its alerts are others", version, repository + "/blob/v0.1.0/docs/faq.md", true},
		"another's":         {"it has other versions", version, "https://github.com/kubernetes/kubernetes/blob/main/README.md", false},
		"main, a candidate": {"the last commit before the release sets them", "v0.2.0-rc.1", repository + "/blob/main/docs/faq.md", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			file := filepath.Join(root, "config", "components", "rule.yaml")
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("runbook_url: "+tc.link), 0o600)); err != nil {
				t.Fatal(err)
			}
			err := release{version: tc.version}.linksToItself(root)
			if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), file+" && make manifests") {
				t.Errorf("got error %v, want one, with the remedy: %t\nreason: %s", err, tc.refused, tc.reason)
			}
		})
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
		"CHANGELOG.md", "README.md", "README.zh-CN.md", "docs/install.md", "docs/kubectl-plugin.md", "docs/quickstart.md",
		"docs/quickstart.zh-CN.md", "charts/rollcall/README.md",
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

// TestNotesOfAFork: a release of a fork leads to the fork's pages, image and chart, and needs nothing edited.
func TestNotesOfAFork(t *testing.T) {
	t.Parallel()
	const text = repository + "/blob/v1.2.3/docs/README.md, " + image + ":v1.2.3, oci://ghcr.io/rollcall-dev/charts/rollcall"
	for of, want := range map[string]string{
		"": text, project: text,
		"Acme/rollcall-eu": "https://github.com/acme/rollcall-eu/blob/v1.2.3/docs/README.md, ghcr.io/acme/rollcall-eu:v1.2.3, oci://ghcr.io/acme/charts/rollcall",
	} {
		if got := string(release{of: of}.own([]byte(text))); got != want {
			t.Errorf("a release of %q has %s, want %s", of, got, want)
		}
	}
}
