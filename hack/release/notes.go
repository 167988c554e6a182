package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	if err := os.MkdirAll(filepath.Dir(notesFile), 0o755); err != nil {
		return fmt.Errorf("making the folder of the release notes: %w", err)
	}
	if err := os.WriteFile(notesFile, []byte(text), 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("writing the release notes: %w", err)
	}
	return nil
}

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
