package cluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// diskForBuild is what the modules, the build cache and the binaries need together.
	diskForBuild = 10 << 30
	// progressEvery is the longest silence of a build.
	progressEvery = 10 * time.Second
	keyLength     = 16
	buildPattern  = ".build-"
)

// Build makes sure that every server has its binary in the cache, and builds those that are missing. Progress goes to
// log, which may be nil. Processes that build at the same time wait for one another.
func Build(ctx context.Context, log io.Writer) error {
	if err := supported(); err != nil {
		return err
	}
	_, err := newBuilder(newProgress(log)).binaries(ctx)
	return err
}

// builder turns the pinned modules into binaries.
type builder struct {
	log *progress
}

func newBuilder(log *progress) *builder { return &builder{log: log} }

// binaries returns the path of each server's binary by name.
func (b *builder) binaries(ctx context.Context) (map[string]string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, fmt.Errorf("the servers are built from Go modules, but there is no go command in PATH: "+
			"install Go %s or newer from https://go.dev/dl: %w", strings.TrimPrefix(runtime.Version(), "go"), err)
	}
	root, err := serversDir(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir(os.Getenv)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, m := range serverModules() {
		if err := b.module(ctx, filepath.Join(root, m.name), cache, m, paths); err != nil {
			return nil, fmt.Errorf("building %s: %w", m.name, err)
		}
	}
	return paths, nil
}

// cacheDir is $XDG_CACHE_HOME/rollcall/servers, by default ~/.cache/rollcall/servers.
func cacheDir(getenv func(string) string) (string, error) {
	base := getenv("XDG_CACHE_HOME")
	if base == "" {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("no place to keep the servers' binaries: set HOME or XDG_CACHE_HOME")
		}
		base = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(base) {
		return "", fmt.Errorf("XDG_CACHE_HOME is %q: write an absolute path", base)
	}
	return filepath.Join(base, "rollcall", "servers"), nil
}

// module adds the paths of one module's binaries, and builds those that neither the machine nor the cache has.
func (b *builder) module(ctx context.Context, dir, cache string, m serverModule, paths map[string]string) error {
	version, err := pinnedVersion(ctx, dir, m.requires)
	if err != nil {
		return err
	}
	flags := []string{"-buildvcs=false", "-ldflags=" + m.ldflags(version)}
	key, err := cacheKey(ctx, dir, flags)
	if err != nil {
		return err
	}
	target := filepath.Join(cache, m.name+"-"+version+"-"+key)
	missing := b.missing(ctx, target, version, m.servers, paths)
	if len(missing) == 0 {
		return nil
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("creating the cache: %w", err)
	}
	unlock, err := lockFile(ctx, target+".lock", func() { b.log.printf("waiting for another process that builds %s", m.name) })
	if err != nil {
		return err
	}
	defer unlock()
	missing = b.missing(ctx, target, version, m.servers, paths)
	if len(missing) == 0 {
		return nil
	}
	return b.compile(ctx, dir, target, version, flags, missing)
}

// missing adds the paths of those servers that are there, and of those that will be in target, and returns the latter.
func (b *builder) missing(
	ctx context.Context, target, version string, servers []server, paths map[string]string,
) []server {
	var missing []server
	for _, s := range servers {
		path := filepath.Join(target, s.name)
		if installed := findInstalled(ctx, s, version, os.Getenv); installed != "" {
			paths[s.name] = installed
			continue
		}
		paths[s.name] = path
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, s)
		}
	}
	return missing
}

// cacheKey hashes everything that makes a binary what it is.
func cacheKey(ctx context.Context, dir string, flags []string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = dir
	cmd.Env = goEnv(os.Environ())
	toolchain, err := cmd.Output()
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

// findInstalled looks for a server in KUBEBUILDER_ASSETS, then in PATH, and returns its path if its version is the pinned
// one, else nothing.
func findInstalled(ctx context.Context, s server, version string, getenv func(string) string) string {
	if s.reported == nil {
		return ""
	}
	dirs := append([]string{getenv("KUBEBUILDER_ASSETS")}, filepath.SplitList(getenv("PATH"))...)
	for _, dir := range dirs {
		path := filepath.Join(dir, s.name)
		if !filepath.IsAbs(path) || !executable(path) {
			continue
		}
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err == nil && s.reported(string(out)) == version {
			return path
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// goEnv is the environment of a build: nothing of the caller's that would change what is built, or break it.
func goEnv(environ []string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"GOFLAGS", "GOWORK", "GOOS", "GOARCH", "CGO_ENABLED", "GOEXPERIMENT"}, name)
	})
	return append(env, "GOWORK=off", "CGO_ENABLED=0")
}

// compile builds into a folder of its own and moves each binary into place when it is whole.
func (b *builder) compile(ctx context.Context, dir, target, version string, flags []string, servers []server) error {
	if err := b.checkDisk(ctx, target); err != nil {
		return err
	}
	if err := removeLeftovers(target); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(target, buildPattern)
	if err != nil {
		return fmt.Errorf("creating a folder for the build: %w", err)
	}
	defer os.RemoveAll(temp)
	for _, s := range servers {
		built := filepath.Join(temp, s.name)
		args := slices.Concat([]string{"build", "-v"}, flags, []string{"-o", built, s.pkg})
		if err := b.run(ctx, dir, s.name+" "+version, args); err != nil {
			return err
		}
		if err := os.Rename(built, filepath.Join(target, s.name)); err != nil {
			return fmt.Errorf("putting %s into the cache: %w", s.name, err)
		}
	}
	return nil
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

// checkDisk refuses to begin what would end with a full disk.
func (b *builder) checkDisk(ctx context.Context, target string) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("asking go for its caches: %w", withStderr(err))
	}
	for _, dir := range append(strings.Split(strings.TrimSpace(string(out)), "\n"), target) {
		free, err := freeDisk(dir)
		if err != nil {
			return fmt.Errorf("looking for free disk space at %s: %w", dir, err)
		}
		if free < diskForBuild {
			return fmt.Errorf("the build needs %d GB of free disk, and %s has %.1f GB: "+
				"free some, or point XDG_CACHE_HOME, GOCACHE and GOMODCACHE to a larger disk",
				diskForBuild>>30, dir, float64(free)/(1<<30))
		}
	}
	return nil
}

// run runs the go command and tells how far it is.
func (b *builder) run(ctx context.Context, dir, what string, args []string) error {
	started := time.Now()
	b.log.printf("building %s (once; kept in the cache)", what)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = goEnv(os.Environ())
	ownGroup(cmd)
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	watch := &buildWatch{}
	var reading sync.WaitGroup
	reading.Go(func() { watch.read(reader) })
	stop := b.report(what, started, watch)
	err := cmd.Run()
	_ = writer.Close()
	reading.Wait()
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("building %s: %w", what, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("building %s in %s: %w:\n%s", what, dir, err, watch.tail())
	}
	b.log.printf("built %s in %s", what, time.Since(started).Round(time.Second))
	return nil
}

// report prints a line now and then until the function that it returns is called.
func (b *builder) report(what string, started time.Time, watch *buildWatch) (stop func()) {
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				b.log.printf("building %s: %s after %s", what, watch, time.Since(started).Round(time.Second))
			}
		}
	})
	return func() {
		close(done)
		reporting.Wait()
	}
}

// buildWatch follows the output of `go build -v`: a line for each download and each package.
type buildWatch struct {
	mu       sync.Mutex
	packages int
	last     string
	lines    []string
}

func (w *buildWatch) read(r io.Reader) {
	const kept = 40
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		w.mu.Lock()
		if !strings.Contains(line, " ") {
			w.packages++
		}
		w.last = line
		w.lines = append(w.lines, line)
		w.lines = w.lines[max(0, len(w.lines)-kept):]
		w.mu.Unlock()
	}
	// A line too long for the scanner must not block the build.
	_, _ = io.Copy(io.Discard, r)
}

func (w *buildWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.last == "":
		return "starting"
	case strings.HasPrefix(w.last, "go: "):
		return strings.TrimPrefix(w.last, "go: ")
	}
	return fmt.Sprintf("%d packages compiled, now %s", w.packages, w.last)
}

func (w *buildWatch) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// progress writes one line for each step.
type progress struct {
	mu  sync.Mutex
	out io.Writer
}

func newProgress(out io.Writer) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{out: out}
}

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, "cluster: "+format+"\n", args...)
}
