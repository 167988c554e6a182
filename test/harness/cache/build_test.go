package cache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestCacheKeyFollowsEverythingThatIsBuilt(t *testing.T) {
	t.Parallel()
	key := func(mod, sum string, flags ...string) string {
		t.Helper()
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "go.mod"), mod)
		writeFile(t, filepath.Join(dir, "go.sum"), sum)
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

func TestBuildPutsWholeBinariesIntoTheCache(t *testing.T) {
	t.Parallel()
	dir, target := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/m\n\ngo 1.26\n")
	writeFile(t, filepath.Join(dir, "good", "main.go"), "package main\n\nfunc main() {}\n")
	writeFile(t, filepath.Join(dir, "bad", "main.go"), "package main\n\nfunc main() { undefined() }\n")
	writeFile(t, filepath.Join(target, buildPattern+"killed", "half"), "half")
	var log strings.Builder
	err := compile(t.Context(), NewProgress(&log, "test"), dir, target, "v1", nil, []Binary{
		{Name: "good", Package: "example.com/m/good"}, {Name: "bad", Package: "example.com/m/bad"},
	})
	expect.Error(t, "what does not compile says so with the compiler's words", err, "undefined: undefined")
	if got := leftIn(t, target); len(got) != 1 || filepath.Base(got[0]) != "good" {
		t.Errorf("the cache has %v, want only what was built whole", got)
	}
	if !strings.Contains(log.String(), "built good v1") {
		t.Errorf("the progress does not name the binary:\n%s", log.String())
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
