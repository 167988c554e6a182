package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Module is one go.mod that pins the version of the binaries built in it.
type Module struct {
	// Name is what the cache and the progress call it.
	Name string
	// Dir is the folder with go.mod and go.sum; see [Dir].
	Dir string
	// Requires is the module whose version is the binaries' version.
	Requires string
	// LDFlags are what the binaries are linked with besides -s -w; nil means nothing.
	LDFlags func(version string) string
	// Idle is of servers that carry no load: without inlining they are built in three quarters of the time, and run slower.
	Idle bool
	// Clock has the binaries take their time of day from a [clock.Clock], if they are started with one.
	Clock bool
	// Binaries are what is built.
	Binaries []Binary
}

// Binary is one program of a Module.
type Binary struct {
	Name    string
	Package string
	// Packages is about how many are compiled for it, the binaries before it being there; 0 means smallBuild.
	Packages int
	// Published is where its project publishes a version for an architecture; nil means nowhere.
	Published func(version, arch string) Published
}

// gcFlags leave out what no debugger reads, which takes a seventh of the CPU of a compilation.
func (m Module) gcFlags() string {
	if m.Idle {
		return "-gcflags=all=-dwarf=false -l"
	}
	return "-gcflags=all=-dwarf=false"
}

func (m Module) ldflags(version string) string {
	if m.LDFlags == nil {
		return "-s -w"
	}
	return "-s -w " + m.LDFlags(version)
}

// Dir returns the folder at a path of this checkout, such as "config/rbac": from where this file was compiled, or, where
// the build dropped that (-trimpath), from the main module of the working directory.
func Dir(ctx context.Context, path string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..", "..")
	if dir := filepath.Join(root, filepath.FromSlash(path)); filepath.IsAbs(dir) && isDir(dir) {
		return dir, nil
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding %s: run this inside the checkout of rollcall: %w", path, withStderr(err))
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), filepath.FromSlash(path))
	if !isDir(dir) {
		return "", fmt.Errorf("finding %s: run this inside the checkout of rollcall: there is no folder %s", path, dir)
	}
	return dir, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// PinnedVersion reads the version of a requirement from the go.mod in dir.
func PinnedVersion(ctx context.Context, dir, requires string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	if err != nil {
		return "", fmt.Errorf("reading %s/go.mod: %w", dir, withStderr(err))
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("reading %s/go.mod: %w", dir, err)
	}
	for _, r := range mod.Require {
		if r.Path == requires {
			return r.Version, nil
		}
	}
	return "", fmt.Errorf("reading %s/go.mod: it requires no %s", dir, requires)
}

// ModuleDir returns the folder, in the module cache, of a module that the go.mod in dir requires, downloading it if need be.
func ModuleDir(ctx context.Context, dir, module string) (string, error) {
	out, err := goIn(ctx, dir, "mod", "download", "-json", module).Output()
	var info struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &info); jsonErr == nil && info.Error != "" {
		return "", fmt.Errorf("downloading %s: %s", module, info.Error)
	}
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w", module, withStderr(err))
	}
	return info.Dir, nil
}

// withStderr adds what a command wrote to its error output.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
