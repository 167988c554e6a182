// Package cache keeps what tests start and do not build themselves: servers built from Go modules that are pinned in a
// go.mod of their own, and downloaded files that are pinned by checksum. Each is got once for a machine and user, with its
// progress told, and then taken from $XDG_CACHE_HOME/rollcall (~/.cache where it is not set).
package cache

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/clock"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	// progressEvery is the longest silence of a build, and firstEstimate is how long one compiles before it tells what is left:
	// what comes first, the standard library, is compiled faster than the rest.
	progressEvery, firstEstimate = 10 * time.Second, 30 * time.Second
	keyLength                    = 16
	// linesShown is how much of a build that failed is shown.
	linesShown   = 40
	buildPattern = ".build-"
)

// Build returns the binaries of a module, and builds those that are not in the cache. Progress goes to log. Processes that
// build at the same time wait for one another.
func Build(ctx context.Context, log *Progress, m Module) (Built, error) {
	all, err := BuildAll(ctx, log, m)
	if err != nil {
		return Built{}, err
	}
	return all[0], nil
}

// BuildAll is [Build] of several modules.
func BuildAll(ctx context.Context, log *Progress, modules ...Module) ([]Built, error) {
	plan, err := NewPlan(ctx, modules...)
	if err != nil {
		return nil, err
	}
	return plan.Build(ctx, log)
}

// Built is what Build made or found.
type Built struct {
	// Version is the pinned one, with its v.
	Version string
	// Paths holds the path of each binary by its name.
	Paths map[string]string
}

// cacheDir is where the user's cache has what is for the tests of Rollcall.
func cacheDir(what string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no place to keep servers: %w", err)
	}
	return filepath.Join(base, "rollcall", what), nil
}

// build is a module with what the cache has of it.
type build struct {
	Module
	Built
	target  string // the folder in the cache
	flags   []string
	missing []Binary
}

func newBuild(ctx context.Context, m Module) (b *build, err error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, fmt.Errorf("it is built from a Go module, but there is no go command in PATH: "+
			"install Go %s or newer from https://go.dev/dl: %w", strings.TrimPrefix(runtime.Version(), "go"), err)
	}
	cache, err := cacheDir("servers")
	if err != nil {
		return nil, err
	}
	b = &build{Module: m}
	if b.Version, err = PinnedVersion(ctx, m.Dir, m.Requires); err != nil {
		return nil, err
	}
	b.flags = []string{"-buildvcs=false", "-ldflags=" + m.ldflags(b.Version)}
	makes := b.flags
	if m.Clock {
		makes = append(slices.Clone(makes), clock.Edition())
	}
	key, err := cacheKey(ctx, m.Dir, makes)
	if err != nil {
		return nil, err
	}
	b.target = filepath.Join(cache, m.Name+"-"+b.Version+"-"+key)
	b.find()
	return b, nil
}

// find looks for the binaries in the cache: those built, then those downloaded.
func (b *build) find() {
	b.Paths, b.missing = map[string]string{}, nil
	for _, bin := range b.Binaries {
		b.Paths[bin.Name] = filepath.Join(b.target, bin.Name)
		if isFile(b.Paths[bin.Name]) {
			continue
		}
		if at, file, pinned := b.published(bin); pinned {
			if path, err := downloaded(at, file); err == nil && isFile(path) {
				b.Paths[bin.Name] = path
				continue
			}
		}
		b.missing = append(b.missing, bin)
	}
}

// make downloads what is missing, and builds what is not published.
func (b *build) make(ctx context.Context, log *Progress, number *counter) error {
	if len(b.missing) == 0 {
		return nil
	}
	unlock, err := lockFolder(ctx, log, b.target, "builds "+b.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if b.find(); len(b.missing) == 0 {
		return nil
	}
	if err := b.download(ctx, log, number); err != nil || len(b.missing) == 0 {
		return err
	}
	return b.compile(ctx, log, number)
}

// lockFolder makes a folder of the cache, and has other processes wait that do the same.
func lockFolder(ctx context.Context, log *Progress, folder, does string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("creating the cache: %w", err)
	}
	return process.Lock(ctx, folder+".lock", func() { log.Printf("waiting for another process that %s", does) })
}

// cacheKey hashes everything that makes a binary what it is.
func cacheKey(ctx context.Context, dir string, flags []string) (string, error) {
	toolchain, err := goIn(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its version: %w", withStderr(err))
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("reading the pinned versions: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("reading the pinned checksums: %w", err)
	}
	return hashKey(toolchain, mod, sum, []byte(strings.Join(flags, "\x00"))), nil
}

// hashKey hashes the parts with their lengths, so that nothing can move from one part to the next unseen.
func hashKey(parts ...[]byte) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%d\n", len(part))
		hash.Write(part)
	}
	return hex.EncodeToString(hash.Sum(nil))[:keyLength]
}

// goIn is a command of go in a module's folder.
func goIn(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, goEnv()
	return cmd
}

// goEnv is the environment of a build: nothing of the caller's that would change what is built, or break it.
func goEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"GOFLAGS", "GOWORK", "GOOS", "GOARCH", "CGO_ENABLED", "GOEXPERIMENT"}, name)
	})
	return append(env, "GOWORK=off", "CGO_ENABLED=0")
}

// compile builds into a folder of its own and moves each binary into place when it is whole.
func (b *build) compile(ctx context.Context, log *Progress, number *counter) error {
	if err := removeLeftovers(b.target); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(b.target, buildPattern)
	if err != nil {
		return fmt.Errorf("creating a folder for the build: %w", err)
	}
	defer os.RemoveAll(temp)
	flags := append(slices.Clone(b.flags), b.gcFlags())
	if b.Clock {
		overlay, err := overlayClock(ctx, b.Dir, temp)
		if err != nil {
			return err
		}
		flags = append(flags, "-overlay="+overlay)
	}
	for _, bin := range b.missing {
		started, built, what := time.Now(), filepath.Join(temp, bin.Name), number.next()+bin.Name+" "+b.Version
		log.Printf("building %s (once; kept in the cache)", what)
		if err := run(ctx, log, b.Dir, what, built, append(flags, bin.Package)); err != nil {
			return err
		}
		if err := os.Rename(built, b.Paths[bin.Name]); err != nil {
			return fmt.Errorf("putting %s into the cache: %w", bin.Name, err)
		}
		log.Printf("built %s in %s%s", what, time.Since(started).Round(time.Second), number.left(cmp.Or(bin.Packages, smallBuild)))
	}
	return nil
}

// overlayClock is an overlay for builds in dir.
func overlayClock(ctx context.Context, dir, temp string) (file string, err error) {
	goroot, err := goIn(ctx, dir, "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its folder: %w", withStderr(err))
	}
	return clock.Overlay(strings.TrimSpace(string(goroot)), temp)
}

// removeLeftovers removes what a build that was killed left behind. The caller holds the lock of the folder.
func removeLeftovers(target string) error {
	left, err := filepath.Glob(filepath.Join(target, buildPattern+"*"))
	if err != nil {
		return fmt.Errorf("looking for left-overs of earlier builds: %w", err)
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing the left-over of an earlier build: %w", err)
		}
	}
	return nil
}

// run builds a binary by what go build is given besides, and tells how far it is.
func run(ctx context.Context, log *Progress, dir, what, binary string, args []string) error {
	stop := log.every(func(took time.Duration) { log.Printf("building %s: looking for its modules, after %s", what, took) })
	total, _ := stale(ctx, dir, args) // what is wrong, the build says
	stop()
	said := &output{total: total}
	stop = log.every(func(took time.Duration) { log.Printf("building %s: %s", what, said.progress(took)) })
	cmd := goIn(ctx, dir, slices.Concat([]string{"build", "-v", "-o", binary}, args)...)
	process.OwnGroup(cmd)
	cmd.Stdout, cmd.Stderr = said, said
	err := cmd.Run()
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("building %s: %w", what, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("building %s in %s: %w:\n%s", what, dir, err, said.last(linesShown))
	}
	return nil
}

// stale returns how many packages are to be compiled.
func stale(ctx context.Context, dir string, args []string, env ...string) (packages int, err error) {
	cmd := goIn(ctx, dir, slices.Concat([]string{"list", "-deps", "-f", `{{if and .Stale (ne .Name "main")}}+{{end}}`}, args)...)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.Output()
	return bytes.Count(out, []byte("+")), err
}

// output is what go build -v has said: a line for each download and each package.
type output struct {
	mu    sync.Mutex
	text  []byte
	total int // the packages to compile
}

// progress is how far the build is, "412 of 1630 packages after 1m10s, about 3m30s left".
func (o *output) progress(took time.Duration) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := 0
	for line := range strings.Lines(string(o.text)) {
		if !strings.HasPrefix(line, "go: ") {
			done++
		}
	}
	switch {
	case done >= o.total:
		return fmt.Sprintf("linking after %s", took)
	case done == 0 || took < firstEstimate:
		return fmt.Sprintf("%d of %d packages after %s", done, o.total, took)
	}
	left := took * time.Duration(o.total-done) / time.Duration(done)
	return fmt.Sprintf("%d of %d packages after %s, about %s left", done, o.total, took, left.Round(progressEvery))
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

func (o *output) last(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(o.text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
