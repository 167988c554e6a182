package config

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestNames: docs/configuration.md lists every name under rollcall.dev/ that the product has, and no other. Each is one more that a user
// has to tell from the rest: before you add one, look whether a value of another can say it.
func TestNames(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`rollcall\.dev/([A-Za-z][A-Za-z-]*)`)
	namesIn := func(text string) map[string]bool {
		names := map[string]bool{}
		for _, found := range name.FindAllStringSubmatch(text, -1) {
			names[found[1]] = true
		}
		return names
	}
	docs, err := os.ReadFile("../docs/configuration.md")
	expect.NoError(t, err)
	_, tables, _ := strings.Cut(string(docs), "\n## Annotations\n")
	tables, _, _ = strings.Cut(tables, "\n## Reload\n")
	listed := namesIn(tables)
	used := map[string]bool{}
	for _, root := range []string{"../internal", "../cmd", "../config", "../charts/rollcall"} {
		expect.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".yaml", ".tpl"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			for line := range strings.SplitSeq(string(text), "\n") {
				if before, _, _ := strings.Cut(line, "//"); filepath.Ext(path) == ".go" { // comments have examples of wrong ones
					line = before
				}
				maps.Copy(used, namesIn(strings.ReplaceAll(line, "rollcall.dev/v1alpha1", "")))
			}
			return err
		}))
	}
	expect.Equal(t, slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(used)), "the names in docs/configuration.md, and those of the product")
}
