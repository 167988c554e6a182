package cache

import (
	"context"
	"fmt"
	"go/version"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Pinned returns the folder, among those at a path of this checkout, that pins the version of a server to run: servers/kruise-1.7 for
// KRUISE=1.7 in the environment, and the newest kruise-* if KRUISE is not set.
func Pinned(ctx context.Context, servers, name string) (dir string, err error) {
	dirs, err := AllPinned(ctx, servers, name)
	if err != nil {
		return "", err
	}
	return dirs[len(dirs)-1], nil
}

// AllPinned returns the folders of all versions, the newest last, for servers that are upgraded; with KRUISE=1.7 that one alone.
func AllPinned(ctx context.Context, servers, name string) (dirs []string, err error) {
	root, err := Dir(ctx, servers)
	if err != nil {
		return nil, err
	}
	return pinned(root, name, os.Getenv(envVersion(name)))
}

func pinned(root, name, want string) (dirs []string, err error) {
	versions, err := Versions(root, name)
	switch {
	case err != nil:
		return nil, err
	case len(versions) == 0:
		return nil, fmt.Errorf("choosing the version of %s: %s has no folder %s-VERSION with a go.mod or a pom.xml", name, root, name)
	case want != "" && !slices.Contains(versions, want):
		return nil, fmt.Errorf("choosing the version of %s: %s is %q, but %s has %s: set one of these, or unset it for the newest",
			name, envVersion(name), want, root, strings.Join(versions, ", "))
	}
	for _, version := range versions {
		if want == "" || version == want {
			dirs = append(dirs, filepath.Join(root, name+"-"+version))
		}
	}
	return dirs, nil
}

// Versions lists the versions of a server that have a folder NAME-VERSION with a go.mod or a pom.xml in root, the newest last.
func Versions(root, name string) ([]string, error) {
	var versions []string
	for _, pins := range []string{"go.mod", "pom.xml"} {
		files, err := filepath.Glob(filepath.Join(root, name+"-[0-9]*", pins))
		if err != nil {
			return nil, fmt.Errorf("listing the versions of %s: %w", name, err)
		}
		for _, file := range files {
			versions = append(versions, strings.TrimPrefix(filepath.Base(filepath.Dir(file)), name+"-"))
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return version.Compare("go"+a, "go"+b) })
	return versions, nil
}

// envVersion is the environment variable that chooses the version of a server.
func envVersion(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
