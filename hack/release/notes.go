package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// notesFile is not in dist: whoever publishes the release shows its text.
const notesFile = "bin/release-notes.md"

// notes writes what the changelog says of the version.
func (r release) notes() error {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return fmt.Errorf("reading the changelog: %w", err)
	}
	text, err := sectionOf(string(changelog), r.version)
	if err != nil {
		return err
	}
	if err := errors.Join(r.isAnnounced("."), r.linksToItself(".")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(notesFile), 0o755); err != nil {
		return fmt.Errorf("making the folder of the release notes: %w", err)
	}
	if err := os.WriteFile(notesFile, r.own([]byte(withAddresses(text, r.version))), 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("writing the release notes: %w", err)
	}
	return nil
}

// isCandidate: a candidate is announced nowhere, and may link to main.
func (r release) isCandidate() bool { return strings.Contains(r.version, "-") }

// isAnnounced returns an error if a page of the checkout says that there is no release yet.
func (r release) isAnnounced(root string) error {
	if r.isCandidate() {
		return nil
	}
	pages, err := notReleasedYet(root)
	if err == nil && len(pages) > 0 {
		err = fmt.Errorf("not released yet, say %s: remove that, and write the date into the heading of CHANGELOG.md",
			strings.Join(pages, ", "))
	}
	return err
}

// notReleasedYet returns the pages that say so, in either language.
func notReleasedYet(root string) (pages []string, err error) {
	for _, pattern := range []string{"*.md", "docs/*.md", "charts/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, page := range found {
			text, err := os.ReadFile(page)
			if err != nil {
				return nil, fmt.Errorf("looking for what is not released yet: %w", err)
			}
			if said := string(text); strings.Contains(said, "> **Not released yet") || strings.Contains(said, "> **尚未发布") ||
				strings.Contains(said, "] - not released yet\n") {
				pages = append(pages, filepath.ToSlash(strings.TrimPrefix(page, root+string(filepath.Separator))))
			}
		}
	}
	return pages, nil
}

// linkToDocs is what a link to a file of a version begins with.
var linkToDocs = regexp.MustCompile(regexp.QuoteMeta(repository) + `/blob/([^/\s]+)/`)

// linksToItself returns an error if a file of config links to another version: kustomize users get these files by ref, as they are.
func (r release) linksToItself(root string) error {
	if r.isCandidate() {
		return nil
	}
	var others []string
	err := filepath.WalkDir(filepath.Join(root, "config"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range linkToDocs.FindAllSubmatch(content, -1) {
			if string(match[1]) != r.version {
				others = append(others, path)
				break
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("looking for links to other versions: %w", err)
	}
	if len(others) > 0 {
		return fmt.Errorf("config links to the docs of another version than %[1]s, and users of kustomize get it as it is. Set the links with "+
			`sed -Ei 's#(%[2]s/blob)/[^/]+/#\1/%[1]s/#' %[3]s && make manifests`, r.version, repository, strings.Join(others, " "))
	}
	return nil
}

// withAddresses makes the links of the text lead to the files of the version: GitHub shows the notes on a page where others do not.
func withAddresses(text, version string) string {
	return relativeLink.ReplaceAllString(text, "]("+repository+"/blob/"+version+"/$1)")
}

// relativeLink has the path of a file in it, not an address or an anchor.
var relativeLink = regexp.MustCompile(`\]\(([^):#]+(?:#[^)]*)?)\)`)

// sectionOf returns what is below the heading of a version. v0.1.0-rc.1 has that of 0.1.0.
func sectionOf(changelog, version string) (string, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	heading := "## [" + name + "]"
	_, behind, found := strings.Cut("\n"+changelog, "\n"+heading)
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section %q: write what %s brings", heading, version)
	}
	_, body, _ := strings.Cut(behind, "\n")
	body, _, _ = strings.Cut(body, "\n## ")
	body, _, _ = strings.Cut(body, "\n[Unreleased]:") // the links of the headings, at the end
	if body = strings.TrimSpace(body); body == "" {
		return "", errors.New("CHANGELOG.md has an empty section " + heading + ": write what " + version + " brings")
	}
	return body + "\n", nil
}
