package cache

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// PublishedSums is the file next to a go.mod with the checksums of what is published of its version, as sha256sum writes them, but of
// URLs: [Pin] writes it. A binary without a line in it is built.
const PublishedSums = "published.txt"

// envBuild has everything built from source if it is 1.
const envBuild = "ROLLCALL_BUILD_SERVERS"

// Published is where a binary of a version can be downloaded.
type Published struct {
	URL string
	// Member is its name in the .tar.gz at the URL; empty if that is the binary itself.
	Member string
	// Sums is where the project publishes the checksum, alone or among others; empty if it does not.
	Sums string
}

// Pin downloads what is published of modules for linux/amd64 and linux/arm64, and writes the checksums next to their go.mod. What a
// project says of a file must agree with what it serves.
func Pin(ctx context.Context, log *Progress, modules ...Module) error {
	lines := map[string][]string{} // by folder
	for _, m := range modules {
		version, err := PinnedVersion(ctx, m.Dir, m.Requires)
		if err != nil {
			return err
		}
		for _, bin := range m.Binaries {
			if bin.Published == nil {
				continue
			}
			for _, arch := range []string{"amd64", "arm64"} {
				at := bin.Published(version, arch)
				sum, err := publishedSum(ctx, log, at)
				if err != nil {
					return fmt.Errorf("pinning %s: %w", at.URL, err)
				}
				lines[m.Dir] = append(lines[m.Dir], sum+"  "+at.URL+"\n")
			}
		}
	}
	for dir, all := range lines {
		slices.Sort(all)
		text := []byte(strings.Join(slices.Compact(all), ""))
		if err := os.WriteFile(filepath.Join(dir, PublishedSums), text, 0o644); err != nil {
			return fmt.Errorf("writing the checksums: %w", err)
		}
	}
	return nil
}

func publishedSum(ctx context.Context, log *Progress, at Published) (string, error) {
	sum, err := copyURL(ctx, log, File{Name: at.URL, URL: at.URL}, io.Discard)
	if err != nil || at.Sums == "" {
		return sum, err
	}
	var said strings.Builder
	if _, err := copyURL(ctx, log, File{Name: at.Sums, URL: at.Sums}, &said); err != nil {
		return "", err
	}
	if !strings.Contains(said.String(), sum) {
		return "", fmt.Errorf("its SHA-256 is %s, which %s does not have", sum, at.Sums)
	}
	return sum, nil
}

// published returns where a binary for this machine is, and its file if its checksum is pinned.
func (b *build) published(bin Binary) (at Published, file File, pinned bool) {
	if bin.Published == nil || runtime.GOOS != "linux" || os.Getenv(envBuild) == "1" {
		return Published{}, File{}, false
	}
	at = bin.Published(b.Version, runtime.GOARCH)
	text, err := os.ReadFile(filepath.Join(b.Dir, PublishedSums))
	if err != nil {
		return at, File{}, false // nothing of this version is pinned
	}
	for line := range strings.Lines(string(text)) {
		if sum, url, _ := strings.Cut(strings.TrimSpace(line), "  "); url == at.URL {
			return at, File{Name: path.Base(url), URL: url, SHA256: sum, Runs: at.Member == ""}, true
		}
	}
	return at, File{}, false
}

// downloaded is where a published binary is once it is downloaded.
func downloaded(at Published, file File) (string, error) {
	path, err := file.path()
	if at.Member != "" {
		path = filepath.Join(filepath.Dir(path), filepath.Base(at.Member))
	}
	return path, err
}

// download gets what is published of what is missing. What can't be had stays missing.
func (b *build) download(ctx context.Context, log *Progress, number *counter) error {
	var missing []Binary
	for _, bin := range b.missing {
		at, file, pinned := b.published(bin)
		if !pinned {
			missing = append(missing, bin)
			continue
		}
		err := fetchBinary(ctx, log, at, file)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			log.Printf("%s %s is built instead: %v", bin.Name, b.Version, err)
			missing = append(missing, bin)
			number.add(bin)
		}
	}
	b.find()
	b.missing = missing
	return nil
}

// fetchBinary downloads a binary, and makes it one that can be run.
func fetchBinary(ctx context.Context, log *Progress, at Published, file File) error {
	whole, err := Download(ctx, log, file)
	if err != nil {
		return err
	}
	if at.Member == "" {
		return nil
	}
	to, err := downloaded(at, file)
	if err != nil {
		return err
	}
	return unpack(whole, at.Member, to)
}

// unpack writes one member of a .tar.gz.
func unpack(archive, member, to string) error {
	in, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	defer in.Close()
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", archive, err)
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("unpacking %s: it has no %s", archive, member)
		}
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", archive, err)
		}
		if header.Name == member {
			return writeWhole(to, 0o755, func(binary io.Writer) error {
				if _, err := io.Copy(binary, files); err != nil {
					return fmt.Errorf("unpacking %s: %w", to, err)
				}
				return nil
			})
		}
	}
}
