// Package mount makes folders of files as kubelet mounts a ConfigMap or a Secret: each file is a symbolic link through ..data,
// which is itself one to the folder with the present content. A new content comes by a swap of that link.
package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// Folder is such a folder.
type Folder struct {
	t        testing.TB
	dir      string
	versions int
	files    map[string]string
}

// New returns a folder with these files.
func New(t testing.TB, files map[string]string) *Folder {
	t.Helper()
	f := &Folder{t: t, dir: t.TempDir()}
	f.Rotate(files)
	return f
}

// Path is where a file of the folder is read.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name) }

// Swap gives one file another content.
func (f *Folder) Swap(name, content string) {
	f.t.Helper()
	files := maps.Clone(f.files)
	files[name] = content
	f.Rotate(files)
}

// Drop takes one file away.
func (f *Folder) Drop(name string) {
	f.t.Helper()
	files := maps.Clone(f.files)
	delete(files, name)
	f.Rotate(files)
}

// Rotate puts another content in the place of all that there is.
func (f *Folder) Rotate(files map[string]string) {
	f.t.Helper()
	f.files = files
	f.versions++
	version := fmt.Sprintf("..version_%d", f.versions)
	expect.NoError(f.t, os.Mkdir(f.Path(version), 0o700))
	for name, content := range files {
		expect.NoError(f.t, os.WriteFile(filepath.Join(f.Path(version), name), []byte(content), 0o600))
		if err := os.Symlink(filepath.Join("..data", name), f.Path(name)); !errors.Is(err, fs.ErrExist) {
			expect.NoError(f.t, err)
		}
	}
	before, _ := os.Readlink(f.Path("..data")) // the first time there is none
	expect.NoError(f.t, os.Symlink(version, f.Path("..data_tmp")))
	expect.NoError(f.t, os.Rename(f.Path("..data_tmp"), f.Path("..data")))
	if before != "" {
		expect.NoError(f.t, os.RemoveAll(f.Path(before)))
	}
}

// Remove takes the content away, and leaves the links.
func (f *Folder) Remove() {
	f.t.Helper()
	expect.NoError(f.t, os.Remove(f.Path("..data")))
}
