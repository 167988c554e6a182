package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestDependabotKnowsEveryModule: an update comes for each go.mod, once. Dependabot refuses a file with a folder in two entries.
func TestDependabotKnowsEveryModule(t *testing.T) {
	t.Parallel()
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, ".github/dependabot.yml"))
	expect.NoError(t, err)
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"` //nolint:tagliatelle // GitHub's name
			Directories []string
		}
	}
	expect.NoError(t, yaml.Unmarshal(text, &config))
	var known []string
	for _, entry := range config.Updates {
		for _, pattern := range entry.Directories {
			if entry.Ecosystem == "gomod" {
				folders, err := filepath.Glob(filepath.Join(root, pattern))
				expect.NoError(t, err)
				known = append(known, folders...)
			}
		}
	}
	expect.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (slices.Contains([]string{"bin", "dist"}, entry.Name()) || strings.HasPrefix(entry.Name(), ".git")) {
			return filepath.SkipDir
		}
		if filepath.Base(path) == "go.mod" {
			times := 0
			for _, folder := range known {
				if folder == filepath.Dir(path) {
					times++
				}
			}
			if times != 1 {
				t.Errorf("%s is in %d gomod directories of .github/dependabot.yml, want 1", path, times)
			}
		}
		return err
	}))
}
