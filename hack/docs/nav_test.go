package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestTheSiteListsEveryPage: what is in docs is in the nav of the site, and the other way round. The site itself is built each night only.
func TestTheSiteListsEveryPage(t *testing.T) {
	t.Parallel()
	const root = "../../docs"
	config, err := os.ReadFile("../site/mkdocs.yml")
	expect.NoError(t, err)
	_, nav, _ := strings.Cut(string(config), "\nnav:\n")
	var listed, there []string
	for _, match := range regexp.MustCompile(`(?m)^ *- (?:.+: )?(\S+\.(?:md|yaml))$`).FindAllStringSubmatch(nav, -1) {
		listed = append(listed, match[1])
		if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
			t.Errorf("nav of hack/site/mkdocs.yml has %s, which is not in docs", match[1])
		}
	}
	expect.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			page, _ := strings.CutPrefix(filepath.ToSlash(path), root+"/")
			there = append(there, page)
			if !slices.Contains(listed, page) {
				t.Errorf("nav of hack/site/mkdocs.yml lacks docs/%s: add it where a reader would look for it", page)
			}
		}
		return err
	}))
	if len(there) < 50 || len(slices.Compact(slices.Sorted(slices.Values(listed)))) != len(listed) {
		t.Errorf("docs has %d pages, and nav %d, some of them twice: %v", len(there), len(listed), listed)
	}
}
