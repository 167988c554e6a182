// Package java has what registries and readers written in Java are run with: a JDK, since each is started from a source
// file, and the jars of Maven Central that a jars.txt beside that file pins by checksum.
package java

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	// oldest is the oldest JDK that runs them all.
	oldest  = 17
	central = "https://repo1.maven.org/maven2/"
	// downloads is how many jars are downloaded at once, and tellEvery how many are between two lines of progress.
	downloads, tellEvery = 8, 20
)

// Jars are those of one folder, and the JVM that runs them.
type Jars struct {
	// Dir is the folder with jars.txt, or where else the sources are that run with them.
	Dir string

	java  string
	paths []string
}

// Get finds a JDK, and downloads the jars that are pinned in a folder below registries and not in the cache yet. Progress
// goes to log. What this machine lacks is an error marked by [registries.Missing].
func Get(ctx context.Context, log io.Writer, folder string) (*Jars, error) {
	dir, err := cache.Dir(ctx, "test/harness/registries/"+folder)
	if err != nil {
		return nil, err
	}
	return get(ctx, log, folder, dir)
}

// Pinned is [Get] of a server's folder below servers; see [cache.Pinned].
func Pinned(ctx context.Context, log io.Writer, server string) (*Jars, error) {
	dir, err := cache.Pinned(ctx, registries.Servers, server)
	if err != nil {
		return nil, err
	}
	return get(ctx, log, filepath.Base(dir), dir)
}

// AllPinned is [Get] of all of a server's folders there, the newest last; see [cache.AllPinned].
func AllPinned(ctx context.Context, log io.Writer, server string) (all []*Jars, err error) {
	dirs, err := cache.AllPinned(ctx, registries.Servers, server)
	for _, dir := range dirs {
		jars, getErr := get(ctx, log, filepath.Base(dir), dir)
		if getErr != nil {
			return nil, getErr
		}
		all = append(all, jars)
	}
	return all, err
}

func get(ctx context.Context, log io.Writer, what, dir string) (*Jars, error) {
	java, err := findJDK(ctx)
	if err != nil {
		return nil, registries.Missing(err)
	}
	pins, err := os.ReadFile(filepath.Join(dir, "jars.txt"))
	if err != nil {
		return nil, fmt.Errorf("reading what is pinned: %w", err)
	}
	files, err := parse(string(pins))
	if err != nil {
		return nil, fmt.Errorf("reading %s/jars.txt: %w", dir, err)
	}
	j := &Jars{Dir: dir, java: java}
	if j.paths, err = download(ctx, cache.NewProgress(log, "registries"), what, files); err != nil {
		return nil, registries.Missing(fmt.Errorf("the jars of %s: %w", what, err))
	}
	return j, nil
}

// findJDK returns the JVM, and wants a compiler beside it that is new enough.
func findJDK(ctx context.Context) (java string, err error) {
	if java, err = exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("java is missing: install a JDK, %d or newer, such as Debian's default-jdk-headless: %w", oldest, err)
	}
	out, err := exec.CommandContext(ctx, "javac", "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac is missing: install a JDK, %d or newer, such as Debian's default-jdk-headless: %w", oldest, err)
	}
	said := strings.TrimSpace(string(out)) // javac 17.0.15
	major, _, _ := strings.Cut(strings.TrimPrefix(said, "javac "), ".")
	if n, err := strconv.Atoi(major); err == nil && n < oldest {
		return "", fmt.Errorf("the JDK in PATH is too old: install %d or newer, it is %s", oldest, said)
	}
	return java, nil
}

// parse reads lines of a SHA-256, two spaces, and a path in Maven Central.
func parse(pins string) ([]cache.File, error) {
	var files []cache.File
	for line := range strings.Lines(pins) {
		sum, file, found := strings.Cut(strings.TrimSpace(line), "  ")
		if !found {
			return nil, fmt.Errorf("%q is no checksum and path", line)
		}
		files = append(files, cache.File{Name: path.Base(file), URL: central + file, SHA256: sum})
	}
	return files, nil
}

// download returns the paths of the files. There are too many to tell of each.
func download(ctx context.Context, log *cache.Progress, what string, files []cache.File) ([]string, error) {
	quiet, paths, done := cache.NewProgress(nil, ""), make([]string, len(files)), atomic.Int64{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(downloads)
	for i, f := range files {
		group.Go(func() (err error) {
			known := f.Cached()
			paths[i], err = cache.Download(ctx, quiet, f)
			if n := done.Add(1); !known && n%tellEvery == 1 {
				log.Printf("downloading the jars of %s (once; kept in the cache): %d of %d are here", what, n, len(files))
			}
			return err
		})
	}
	return paths, group.Wait()
}

// Version is that of an artifact among the jars, or empty.
func (j *Jars) Version(artifact string) string {
	for _, p := range j.paths {
		version, found := strings.CutPrefix(filepath.Base(p), artifact+"-")
		if found && version[0] >= '0' && version[0] <= '9' {
			return strings.TrimSuffix(version, ".jar")
		}
	}
	return ""
}

// Command returns the JVM and its arguments for a small program that should start quickly: flags of the JVM, and then a
// class or a source file with its own arguments. Jars of others come behind these on the class path.
func (j *Jars) Command(flags, main []string, others ...*Jars) (java string, args []string) {
	all := slices.Clone(j.paths)
	for _, o := range others {
		all = append(all, o.paths...)
	}
	args = append([]string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8"}, flags...)
	return j.java, append(append(args, "-cp", strings.Join(all, ":")), main...)
}
