package cache

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestCacheDir(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		env    map[string]string
		want   string
		err    string
	}{
		"xdg": {
			reason: "XDG_CACHE_HOME wins over HOME",
			env:    map[string]string{"XDG_CACHE_HOME": "/cache", "HOME": "/home/u"},
			want:   "/cache/rollcall/servers",
		},
		"home": {
			reason: "without XDG_CACHE_HOME it is ~/.cache",
			env:    map[string]string{"HOME": "/home/u"},
			want:   "/home/u/.cache/rollcall/servers",
		},
		"neither": {
			reason: "without both there is no place, and the error names them",
			err:    "set HOME or XDG_CACHE_HOME",
		},
		"relative": {
			reason: "a relative XDG_CACHE_HOME would be another place for each caller",
			env:    map[string]string{"XDG_CACHE_HOME": "cache"},
			err:    "XDG_CACHE_HOME",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := cacheDir(func(name string) string { return tc.env[name] }, "servers")
			expectError(t, tc.reason, err, tc.err)
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCacheKeyFollowsEverythingThatIsBuilt(t *testing.T) {
	t.Parallel()
	key := func(mod, sum string, flags ...string) string {
		t.Helper()
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "go.mod"), mod, 0o600)
		writeFile(t, filepath.Join(dir, "go.sum"), sum, 0o600)
		got, err := cacheKey(t.Context(), dir, flags)
		expect.NoError(t, err)
		return got
	}
	const mod = "module example.com/m\n\ngo 1.26\n"
	base := key(mod, "sum", "-a")
	if again := key(mod, "sum", "-a"); again != base {
		t.Errorf("the same pins and flags have keys %s and %s", base, again)
	}
	for name, other := range map[string]string{
		"go.mod": key(mod+"// changed\n", "sum", "-a"),
		"go.sum": key(mod, "changed", "-a"),
		"flags":  key(mod, "sum", "-b"),
	} {
		if other == base {
			t.Errorf("another %s has the same key", name)
		}
	}
	if hashKey([]byte("ab"), []byte("c")) == hashKey([]byte("a"), []byte("bc")) {
		t.Error("what moves from one part to the next does not change the key")
	}
}

func TestFindInstalled(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{"pinned": t.TempDir(), "older": t.TempDir(), "broken": t.TempDir(), "empty": t.TempDir()}
	writeFile(t, filepath.Join(dirs["pinned"], "etcd"), "#!/bin/sh\necho etcd Version: 3.6.16\n", 0o700)
	writeFile(t, filepath.Join(dirs["older"], "etcd"), "#!/bin/sh\necho etcd Version: 3.5.0\n", 0o700)
	writeFile(t, filepath.Join(dirs["broken"], "etcd"), "#!/bin/sh\nexit 1\n", 0o700)
	for name, tc := range map[string]struct {
		reason string
		assets string
		path   []string
		want   string
	}{
		"assets": {reason: "KUBEBUILDER_ASSETS has the pinned version", assets: "pinned", want: "pinned"},
		"path":   {reason: "so has PATH", path: []string{"empty", "pinned"}, want: "pinned"},
		"older":  {reason: "another version is not the same server", assets: "older", path: []string{"older"}},
		"next": {
			reason: "the search goes on behind what does not match",
			assets: "older", path: []string{"broken", "pinned"}, want: "pinned",
		},
		"nothing": {reason: "nothing is installed", path: []string{"empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var path []string
			for _, dir := range tc.path {
				path = append(path, dirs[dir])
			}
			env := map[string]string{
				"KUBEBUILDER_ASSETS": dirs[tc.assets], "PATH": strings.Join(path, string(os.PathListSeparator)),
			}
			s := Binary{Name: "etcd", Reported: func(output string) string {
				return "v" + strings.TrimPrefix(strings.TrimSpace(output), "etcd Version: ")
			}}
			got := findInstalled(t.Context(), s, "v3.6.16", func(name string) string { return env[name] })
			want := ""
			if tc.want != "" {
				want = filepath.Join(dirs[tc.want], "etcd")
			}
			if got != want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, want)
			}
			s.Reported = nil
			if got := findInstalled(t.Context(), s, "v3.6.16", func(name string) string { return env[name] }); got != "" {
				t.Errorf("a server whose version can't be told was taken: %q", got)
			}
		})
	}
}

func TestGoEnvDropsWhatChangesTheBuild(t *testing.T) {
	t.Parallel()
	got := goEnv([]string{
		"HOME=/home/u", "GOFLAGS=-mod=vendor", "GOWORK=/w", "GOPROXY=https://proxy.example.com", "GOOS=plan9",
	})
	want := []string{"HOME=/home/u", "GOPROXY=https://proxy.example.com", "GOWORK=off", "CGO_ENABLED=0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the environment of a build is another (-want +got):\n%s", diff)
	}
}

func TestBuildPutsWholeBinariesIntoTheCache(t *testing.T) {
	t.Parallel()
	dir, target := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/m\n\ngo 1.26\n", 0o600)
	writeFile(t, filepath.Join(dir, "good", "main.go"), "package main\n\nfunc main() {}\n", 0o600)
	writeFile(t, filepath.Join(dir, "bad", "main.go"), "package main\n\nfunc main() { undefined() }\n", 0o600)
	writeFile(t, filepath.Join(target, buildPattern+"killed", "half"), "half", 0o600)
	var log strings.Builder
	b := &builder{log: NewProgress(&log, "test")}

	err := b.compile(t.Context(), dir, target, "v1", nil, []Binary{
		{Name: "good", Package: "example.com/m/good"}, {Name: "bad", Package: "example.com/m/bad"},
	})
	expectError(t, "what does not compile says so with the compiler's words", err, "undefined: undefined")
	if got, want := fileNames(t, target), []string{"good"}; !cmp.Equal(want, got) {
		t.Errorf("the cache has %v, want only what was built whole: %v", got, want)
	}
	if !strings.Contains(log.String(), "building good v1") || !strings.Contains(log.String(), "built good v1") {
		t.Errorf("the progress does not name the binary:\n%s", log.String())
	}
}

func TestBuildWatch(t *testing.T) {
	t.Parallel()
	watch := &buildWatch{}
	if got := watch.String(); got != "starting" {
		t.Errorf("before the first line: %q", got)
	}
	watch.read(strings.NewReader("go: downloading example.com/m v1.0.0\n"))
	if got, want := watch.String(), "downloading example.com/m v1.0.0"; got != want {
		t.Errorf("while modules come: %q, want %q", got, want)
	}
	watch.read(strings.NewReader("internal/abi\nnet/http\n"))
	if got, want := watch.String(), "2 packages compiled, now net/http"; got != want {
		t.Errorf("while packages are compiled: %q, want %q", got, want)
	}
}

func expectError(t *testing.T, reason string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: unexpected error: %v", reason, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: got error %v, want one with %q", reason, err, want)
	}
}

func writeFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	expect.NoError(t, os.WriteFile(path, []byte(content), mode))
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	expect.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
