package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// longestDownload bounds the download of one file: none is larger than 120 MB.
const longestDownload = 10 * time.Minute

// File is a file to download, pinned by its checksum.
type File struct {
	// Name is the file's in the cache, and in progress and errors: "nacos-server-3.0.1.jar".
	Name string
	URL  string
	// SHA256 is the checksum in hex.
	SHA256 string
	// Runs is of a binary.
	Runs bool
}

// path is where it is in the cache. The folder's name is the checksum, so another pin is another file.
func (f File) path() (string, error) {
	cache, err := cacheDir("downloads")
	return filepath.Join(cache, f.SHA256, f.Name), err
}

// Cached reports whether the cache has the file.
func (f File) Cached() bool {
	path, err := f.path()
	return err == nil && isFile(path)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Download returns the path of the file in the cache, and downloads it where the cache has no file of that checksum.
// What arrives is moved into place only when it is whole and its checksum is right. Progress goes to log. Processes that
// want the same file at the same time wait for one another.
func Download(ctx context.Context, log *Progress, f File) (string, error) {
	path, err := download(ctx, log, f)
	if err != nil {
		return "", fmt.Errorf("downloading %s from %s: %w", f.Name, f.URL, err)
	}
	return path, nil
}

func download(ctx context.Context, log *Progress, f File) (string, error) {
	if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("its checksum %q is not a SHA-256 in hex", f.SHA256)
	}
	path, err := f.path()
	if err != nil {
		return "", err
	}
	if isFile(path) {
		return path, nil
	}
	dir := filepath.Dir(path)
	unlock, err := lockFolder(ctx, log, dir, "downloads "+f.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isFile(path) {
		return path, nil
	}
	if err := removeLeftovers(dir); err != nil {
		return "", err
	}
	return path, fetch(ctx, log, f, path)
}

// fetch downloads a file to path.
func fetch(ctx context.Context, log *Progress, f File, path string) error {
	mode := os.FileMode(0o644)
	if f.Runs {
		mode = 0o755
	}
	return writeWhole(path, mode, func(to io.Writer) error {
		sum, err := copyURL(ctx, log, f, to)
		if err == nil && sum != f.SHA256 {
			err = fmt.Errorf("its SHA-256 is %s, and %s is pinned", sum, f.SHA256)
		}
		return err
	})
}

// writeWhole writes a file next to path, and moves it there when it is whole.
func writeWhole(path string, mode os.FileMode, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), buildPattern)
	if err != nil {
		return fmt.Errorf("creating a file for %s: %w", path, err)
	}
	defer os.Remove(temp.Name())
	defer temp.Close()
	if err := write(temp); err != nil {
		return err
	}
	if err := errors.Join(temp.Chmod(mode), temp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(temp.Name(), path)
}

func copyURL(ctx context.Context, log *Progress, f File, to io.Writer) (sum string, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestDownload)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL, nil)
	if err != nil {
		return "", fmt.Errorf("making the request: %w", err)
	}
	started := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", errors.New("the server answers " + response.Status)
	}
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, hash), response.Body); err != nil {
		return "", fmt.Errorf("copying what the server sends: %w", err)
	}
	log.Printf("downloaded %s in %s", f.Name, time.Since(started).Round(time.Second))
	return hex.EncodeToString(hash.Sum(nil)), nil
}
