package nacos

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	mavenCentral = "https://repo1.maven.org/maven2/"
	// downloads is how many files are downloaded at once.
	downloads = 8
	// tellEvery is how many files are between two lines of progress.
	tellEvery = 20
	minJava   = 17
)

//go:embed server/v2/jars.txt server/v3/jars.txt
var pinned embed.FS

// Version is a server's major version.
type Version int

// The versions there are.
const (
	V2 Version = 2
	V3 Version = 3
)

// dir is the version's folder in this one.
func (v Version) dir() string { return fmt.Sprintf("server/v%d", v) }

// files returns what the version's server is made of.
func (v Version) files() ([]cache.File, error) {
	list, err := pinned.Open(v.dir() + "/jars.txt")
	if err != nil {
		return nil, fmt.Errorf("reading what is pinned: %w", err)
	}
	defer list.Close()
	var files []cache.File
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		sum, file, found := strings.Cut(lines.Text(), "  ")
		if !found {
			return nil, fmt.Errorf("reading what is pinned: %q is no checksum and path", lines.Text())
		}
		files = append(files, cache.File{Name: path.Base(file), URL: mavenCentral + file, SHA256: sum})
	}
	return files, lines.Err()
}

// number is the full version, as the jar of the naming module has it.
func (v Version) number() (string, error) {
	files, err := v.files()
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if number, found := strings.CutPrefix(f.Name, "nacos-naming-"); found {
			return "v" + strings.TrimSuffix(number, ".jar"), nil
		}
	}
	return "", errors.New("no naming module is pinned")
}

// Get downloads both versions' servers, and builds the client that reads them, unless they are there, and tells log about it.
func Get(ctx context.Context, log io.Writer) ([]string, error) {
	if _, err := GetReader(ctx, log); err != nil {
		return nil, err
	}
	var all []string
	for _, v := range []Version{V2, V3} {
		jars, err := get(ctx, log, v)
		if err != nil {
			return nil, err
		}
		all = append(all, jars...)
	}
	return all, nil
}

// get returns the paths of one version's jars.
func get(ctx context.Context, log io.Writer, v Version) ([]string, error) {
	if err := checkJava(ctx); err != nil {
		return nil, registries.Missing(err)
	}
	files, err := v.files()
	if err != nil {
		return nil, err
	}
	number, err := v.number()
	if err != nil {
		return nil, err
	}
	started := time.Now()
	progress := cache.NewProgress(log, "registries")
	counted := &counting{}
	paths := make([]string, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(downloads)
	for i, f := range files {
		group.Go(func() (err error) {
			paths[i], err = cache.Download(ctx, cache.NewProgress(counted, ""), f)
			if n := counted.files.Load(); err == nil && n > 0 && n%tellEvery == 0 {
				progress.Printf("Nacos %s: downloaded %d files of up to %d (once; kept in the cache)", number, n, len(files))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, registries.Missing(fmt.Errorf("the server of Nacos %s: %w", number, err))
	}
	if n := counted.files.Load(); n > 0 {
		progress.Printf("Nacos %s: downloaded %d files in %s", number, n, time.Since(started).Round(time.Second))
	}
	return paths, nil
}

// counting takes the lines that are written about single files, of which there are too many to show, and counts those of
// finished ones.
type counting struct{ files atomic.Int64 }

func (c *counting) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "downloaded ") {
		c.files.Add(1)
	}
	return len(line), nil
}

// checkJava returns why Java on this machine can't run the server.
func checkJava(ctx context.Context) error {
	const install = "install a JDK, such as Debian's default-jdk-headless"
	if _, err := exec.LookPath("java"); err != nil {
		return fmt.Errorf("the server needs Java %d or newer: %s: %w", minJava, install, err)
	}
	out, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("asking java for its version: %w", err)
	}
	if major := javaMajor(string(out)); major < minJava {
		return fmt.Errorf("the server needs Java %d or newer, and java says: %s: %s",
			minJava, strings.TrimSpace(string(out)), install)
	}
	out, err = exec.CommandContext(ctx, "java", "--list-modules").Output()
	if err != nil {
		return fmt.Errorf("asking java for its modules: %w", err)
	}
	if !strings.Contains(string(out), "jdk.compiler@") {
		return errors.New("the server is started from a source file, and this Java is without a compiler: " + install)
	}
	return nil
}

// javaMajor reads `openjdk version "17.0.15" 2025-04-15`, 0 for anything else.
func javaMajor(output string) int {
	_, rest, _ := strings.Cut(output, ` version "`)
	digits := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
	if digits < 0 {
		return 0
	}
	major, _ := strconv.Atoi(rest[:digits]) // none is 0
	return major
}
