package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestNew(t *testing.T) {
	t.Parallel()
	made := newImage(t)
	file, err := made.ConfigFile()
	expect.NoError(t, err)
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/manager"}, Cmd: []string{"--x"}, Env: []string{"A=1"}, WorkingDir: "/"}
	expect.Equal(t, want, file.Config, "the configuration")
	files := mutate.Extract(made)
	defer files.Close()
	archive := tar.NewReader(files)
	header, err := archive.Next()
	if err != nil || header.Name != "manager" || header.Mode != 0o755 {
		t.Fatalf("the first file is %+v, error %v: want the executable manager", header, err)
	}
	if content, err := io.ReadAll(archive); err != nil || string(content) != "program" {
		t.Errorf("the file holds %q, error %v", content, err)
	}
	if header, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("there is more than the binary: %+v, error %v", header, err)
	}

	one, err := made.Digest()
	expect.NoError(t, err)
	two, err := newImage(t).Digest()
	expect.NoError(t, err)
	if one != two {
		t.Errorf("the same binary gives two images, %s and %s", one, two)
	}
}

func newImage(t *testing.T) v1.Image {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "built")
	expect.NoError(t, os.WriteFile(binary, []byte("program"), 0o600))
	made, err := New(Spec{
		Files: map[string]string{"manager": binary}, Entrypoint: "manager", Platform: v1.Platform{OS: "linux", Architecture: "amd64"},
		Args: []string{"--x"}, Env: []string{"A=1"},
	})
	expect.NoError(t, err)
	return made
}
