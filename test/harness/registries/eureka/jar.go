package eureka

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	// oldestJava is what Spring Boot 3 needs.
	oldestJava = 17
	// sources is where the server's are, in the checkout.
	sources = "test/harness/registries/eureka/server"
	jarName = "eureka-server.jar"
	// progressEvery is the longest silence of a build.
	progressEvery = 10 * time.Second
	keyLength     = 16
	buildPattern  = ".build-"
	maxLine       = 1 << 20
)

// maven is used where none is in PATH.
func maven() cache.File {
	const version = "3.9.11"
	name := "apache-maven-" + version + "-bin.tar.gz"
	return cache.File{
		Name: name, SHA256: "4b7195b6a4f5c81af4c0212677a32ee8143643401bc6e1e8412e6b06ea82beac",
		URL: "https://repo.maven.apache.org/maven2/org/apache/maven/apache-maven/" + version + "/" + name,
	}
}

// Files are what is needed to run servers and readers.
type Files struct {
	// Java is the program.
	Java string
	// Jar is the server, and the reader.
	Jar string
	// Version is that of Eureka in it.
	Version string
}

// Get finds Java and returns the jar in the cache, which is built first where the cache has none of these sources. It tells
// log about that.
func Get(ctx context.Context, log io.Writer) (Files, error) {
	java, err := findJava(ctx)
	if err != nil {
		return Files{}, registries.Missing(err)
	}
	jar, err := build(ctx, cache.NewProgress(log, "registries"))
	if err != nil {
		return Files{}, fmt.Errorf("building the Eureka server: %w", err)
	}
	version, err := versionIn(jar)
	return Files{Java: java, Jar: jar, Version: version}, err
}

// findJava wants a compiler, and that it is new enough.
func findJava(ctx context.Context) (string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("java is missing: Eureka needs a JDK, %d or newer, in PATH (default-jdk-headless in Debian): %w", oldestJava, err)
	}
	out, err := exec.CommandContext(ctx, "javac", "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac is missing: Eureka's server is compiled here, and needs a JDK, %d or newer, in PATH: %w", oldestJava, err)
	}
	said := strings.TrimSpace(string(out)) // javac 17.0.15
	major, _, _ := strings.Cut(strings.TrimPrefix(said, "javac "), ".")
	if n, err := strconv.Atoi(major); err == nil && n < oldestJava {
		return "", fmt.Errorf("the JDK in PATH is too old: Eureka needs %d or newer, and it is %s", oldestJava, said)
	}
	return java, nil
}

// build returns the path of the jar. Processes that build at the same time wait for one another.
func build(ctx context.Context, log *cache.Progress) (string, error) {
	from, err := cache.Dir(ctx, sources)
	if err != nil {
		return "", err
	}
	key, err := hashTree(from)
	if err != nil {
		return "", err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a place to keep the server: %w", err)
	}
	target := filepath.Join(user, "rollcall", "servers", "eureka-"+key)
	jar := filepath.Join(target, jarName)
	if isFile(jar) {
		return jar, nil
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache: %w", err)
	}
	unlock, err := process.Lock(ctx, target+".lock", func() { log.Printf("waiting for another process that builds Eureka") })
	if err != nil {
		return "", err
	}
	defer unlock()
	if isFile(jar) {
		return jar, nil
	}
	return jar, compile(ctx, log, from, target)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// hashTree hashes all files in a folder with their names.
func hashTree(dir string) (string, error) {
	hash := sha256.New()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		fmt.Fprintf(hash, "%q %d\n", path, len(content))
		hash.Write(content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the server's sources: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:keyLength], nil
}

// compile builds in a folder of its own, and moves the jar into place when it is whole. The caller holds the lock.
func compile(ctx context.Context, log *cache.Progress, from, target string) error {
	if err := removeLeftovers(target); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(target, buildPattern)
	if err != nil {
		return fmt.Errorf("creating a folder for the build: %w", err)
	}
	defer os.RemoveAll(temp)
	work := filepath.Join(temp, "work")
	if err := os.CopyFS(work, os.DirFS(from)); err != nil {
		return fmt.Errorf("copying the server's sources: %w", err)
	}
	mvn, err := findMaven(ctx, log, temp)
	if err != nil {
		return registries.Missing(err)
	}
	if err := runMaven(ctx, log, mvn, work); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(work, "target", jarName), filepath.Join(target, jarName)); err != nil {
		return fmt.Errorf("putting the server into the cache: %w", err)
	}
	return nil
}

// removeLeftovers removes what a build that was killed left behind.
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

// findMaven returns the one in PATH, or else downloads one and unpacks it in temp.
func findMaven(ctx context.Context, log *cache.Progress, temp string) (string, error) {
	if mvn, err := exec.LookPath("mvn"); err == nil {
		return mvn, nil
	}
	archive, err := cache.Download(ctx, log, maven())
	if err != nil {
		return "", err
	}
	if err := unpack(archive, temp); err != nil {
		return "", fmt.Errorf("unpacking %s: %w", archive, err)
	}
	return filepath.Join(temp, strings.TrimSuffix(maven().Name, "-bin.tar.gz"), "bin", "mvn"), nil
}

// unpack unpacks the files of a .tar.gz, whose checksum says that it can be trusted, into dir.
func unpack(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading it: %w", err)
		}
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) {
			continue
		}
		if err := writeFile(filepath.Join(dir, header.Name), header.FileInfo().Mode().Perm(), files); err != nil {
			return err
		}
	}
}

func writeFile(path string, mode fs.FileMode, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating a folder: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("creating a file: %w", err)
	}
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// runMaven builds the jar in dir and tells how far it is. What is downloaded must have the repository's checksum.
func runMaven(ctx context.Context, log *cache.Progress, mvn, dir string) error {
	started := time.Now()
	log.Printf("building the Eureka server with Maven (once; kept in the cache, and what it downloads in ~/.m2)")
	cmd := exec.CommandContext(ctx, mvn, "--batch-mode", "--strict-checksums", "-Dstyle.color=never", "package")
	cmd.Dir = dir
	process.OwnGroup(cmd)
	watch := &watch{}
	cmd.Stdout, cmd.Stderr = watch, watch
	stop := tell(func() {
		log.Printf("building the Eureka server: %s after %s", watch, time.Since(started).Round(time.Second))
	})
	err := cmd.Run()
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w:\n%s", mvn, err, watch.tail())
		if watch.lacked() {
			return registries.Missing(err)
		}
		return err
	}
	log.Printf("built the Eureka server in %s", time.Since(started).Round(time.Second))
	return nil
}

// tell calls a function now and then, until the one that it returns is called.
func tell(f func()) (stop func()) {
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				f()
			}
		}
	})
	return func() {
		close(done)
		telling.Wait()
	}
}

// watch follows the output of Maven. It is safe for concurrent use.
type watch struct {
	mu        sync.Mutex
	rest      []byte
	lines     []string // the last ones, without those of downloads
	downloads int
	missing   bool
}

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			break
		}
		w.rest = rest
		w.line(strings.TrimSpace(string(line)))
	}
	if len(w.rest) > maxLine {
		w.rest = nil
	}
	return len(p), nil
}

func (w *watch) line(line string) {
	const kept = 40
	switch {
	case line == "":
	case strings.Contains(line, "Downloaded from "):
		w.downloads++
	case strings.Contains(line, "Downloading from "), strings.HasPrefix(line, "Progress ("):
	default:
		w.lines = append(w.lines, line)
		w.lines = w.lines[max(0, len(w.lines)-kept):]
		w.missing = w.missing || couldNotDownload().MatchString(line)
	}
}

// couldNotDownload matches what Maven says of what it can't get, not of what it can't build.
func couldNotDownload() *regexp.Regexp {
	return regexp.MustCompile(`Could not (transfer|resolve|find) |Non-resolvable|Unknown host|could not be resolved`)
}

// lacked reports whether something could not be downloaded.
func (w *watch) lacked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missing
}

func (w *watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := "starting"
	if len(w.lines) > 0 {
		last = w.lines[len(w.lines)-1]
	}
	return fmt.Sprintf("%d files downloaded, %s", w.downloads, last)
}

func (w *watch) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Clone(w.lines), "\n")
}

// versionIn reads the version of Eureka off the name of its core in the jar.
func versionIn(jar string) (string, error) {
	const prefix, suffix = "BOOT-INF/lib/eureka-core-", ".jar"
	archive, err := zip.OpenReader(jar)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", jar, err)
	}
	defer archive.Close()
	for _, file := range archive.File {
		version, found := strings.CutPrefix(file.Name, prefix)
		if found && version != "" && version[0] >= '0' && version[0] <= '9' {
			return strings.TrimSuffix(version, suffix), nil
		}
	}
	return "", fmt.Errorf("%s has no %s*%s", jar, prefix, suffix)
}
