package cache

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/clock"
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
	b := &build{target: target, Built: Built{Version: "v1"}, Module: Module{Dir: dir, Binaries: []Binary{
		{Name: "good", Package: "example.com/m/good"}, {Name: "bad", Package: "example.com/m/bad"},
	}}}
	b.find()
	err := b.compile(t.Context(), NewProgress(&log, "test"), &counter{total: 2, packages: 2 * smallBuild, begun: time.Now()})
	expect.Error(t, "what does not compile says so with the compiler's words", err, "undefined: undefined")
	if got := leftIn(t, target); len(got) != 1 || filepath.Base(got[0]) != "good" {
		t.Errorf("the cache has %v, want only what was built whole", got)
	}
	if said := log.String(); !strings.Contains(said, "built server 1 of 2, good v1") || !strings.Contains(said, " min left for the rest") {
		t.Errorf("the progress does not tell which binary of how many, and how long the others take:\n%s", said)
	}
}

func TestProgressOfABuild(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, said string
		total        int
		took         time.Duration
		want         string
	}{
		{"nothing is to be compiled", "", 0, 10 * time.Second, "linking after 10s"},
		{"downloads are no packages", "go: downloading a v1\n", 4, 10 * time.Second, "0 of 4 packages after 10s"},
		{"the first packages tell nothing of the others", "fmt\n", 4, 20 * time.Second, "1 of 4 packages after 20s"},
		{"a quarter took 40 s", "go: downloading a v1\nfmt\n", 4, 40 * time.Second, "1 of 4 packages after 40s, about 2m0s left"},
		{"the linker says nothing", "fmt\nio\n", 2, time.Minute, "linking after 1m0s"},
	} {
		o := &output{total: tc.total}
		_, _ = o.Write([]byte(tc.said))
		expect.Equal(t, tc.want, o.progress(tc.took), "%s", tc.reason)
	}
}

func TestPlanTellsWhatABuildTakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		plan   Plan
		want   string
	}{
		{"nothing is missing", Plan{}, ""},
		{"what is small takes no gigabytes", Plan{names: []string{"a"}, packages: 400},
			"a: about 1 min on two cores, with 0.6 GB of free disk and a network"},
		{"several add up", Plan{names: []string{"a", "b"}, packages: 5000},
			"a, b: about 11 min on two cores, with 7.3 GB of free disk and a network"},
	} {
		expect.Equal(t, tc.want, tc.plan.String(), "%s", tc.reason)
	}
}

// TestBuildWithAClock: what is built reads another time of day from then on, and no other durations.
func TestBuildWithAClock(t *testing.T) {
	t.Parallel()
	dir, target := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/m\n\ngo 1.26\n")
	writeFile(t, filepath.Join(dir, "main.go"), `package main

import (
	"os"
	"time"
)

func main() {
	began, one := time.Now(), make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(one); err != nil {
			return
		}
		now := time.Now()
		os.Stdout.WriteString(now.Format(time.RFC3339) + " " + now.Sub(began).Truncate(time.Minute).String() + "\n")
	}
}
`)
	b := &build{target: target, Module: Module{Dir: dir, Clock: true, Binaries: []Binary{{Name: "tells", Package: "example.com/m"}}}}
	b.find()
	expect.NoError(t, b.compile(t.Context(), NewProgress(io.Discard, ""), &counter{}))
	c, err := clock.New(filepath.Join(t.TempDir(), "clock"))
	expect.NoError(t, err)
	program := exec.CommandContext(t.Context(), filepath.Join(target, "tells"))
	program.Env = c.Env()
	asks, err := program.StdinPipe()
	expect.NoError(t, err)
	tells, err := program.StdoutPipe()
	expect.NoError(t, err)
	expect.NoError(t, program.Start())
	lines := bufio.NewScanner(tells)
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		expect.NoError(t, c.Set(ahead))
		_, err := asks.Write([]byte{0})
		expect.NoError(t, err)
		if !lines.Scan() {
			t.Fatalf("the program has ended: %v", lines.Err())
		}
		at, passed, _ := strings.Cut(lines.Text(), " ")
		got, err := time.Parse(time.RFC3339, at)
		expect.NoError(t, err)
		if off := time.Until(got) - ahead; off.Abs() > time.Minute || passed != "0s" {
			t.Errorf("%s ahead: the program is %s ahead of that, and says that %s have passed", ahead, off, passed)
		}
	}
	expect.NoError(t, c.IsReadBy(program.Process.Pid))
	expect.NoError(t, asks.Close())
	expect.NoError(t, program.Wait())
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
