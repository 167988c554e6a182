package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	for _, want := range []struct {
		name, content string
		mode          int64
	}{{"etc", "", 0o755}, {"etc/list", "content of etc/list", 0o644}, {"manager", "content of manager", 0o755}} {
		header, err := archive.Next()
		if err != nil || header.Name != want.name || header.Mode != want.mode {
			t.Fatalf("the next file is %+v, error %v: want %s with mode %o", header, err, want.name, want.mode)
		}
		if content, err := io.ReadAll(archive); err != nil || string(content) != want.content {
			t.Errorf("%s holds %q, error %v", want.name, content, err)
		}
	}
	if header, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("there is more than these files: %+v, error %v", header, err)
	}

	one, err := made.Digest()
	expect.NoError(t, err)
	two, err := newImage(t).Digest()
	expect.NoError(t, err)
	if one != two {
		t.Errorf("the same binary gives two images, %s and %s", one, two)
	}
}

// newImage makes it from files of another folder each time, as different users have them.
func newImage(t *testing.T) v1.Image {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	for name, mode := range map[string]os.FileMode{"manager": 0o700, "etc/list": 0o600} {
		files[name] = filepath.Join(dir, filepath.Base(name))
		expect.NoError(t, os.WriteFile(files[name], []byte("content of "+name), mode))
	}
	made, err := New(Spec{
		Files: files, Entrypoint: "manager", Platform: v1.Platform{OS: "linux", Architecture: "amd64"},
		Args: []string{"--x"}, Env: []string{"A=1"},
	})
	expect.NoError(t, err)
	return made
}

// TestDockerfile: the last stage of the Dockerfile makes the image that [Rollcall] describes, from what make builds.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Dockerfile")
	expect.NoError(t, err)
	_, last, ok := strings.Cut(string(text), "\nFROM scratch\n")
	if !ok {
		t.Fatal("no stage begins with FROM scratch: what else does the image have?")
	}
	spec := Rollcall("bin/manager", "bin/ca-certificates.crt")
	want := []string{"WORKDIR /", "USER " + user, `ENTRYPOINT ["/` + spec.Entrypoint + `"]`}
	for name, path := range spec.Files {
		want = append(want, "COPY --from=build /src/"+path+" /"+name)
	}
	got := strings.Split(strings.TrimSpace(last), "\n")
	slices.Sort(want)
	slices.Sort(got)
	expect.Equal(t, want, got, "the instructions of the last stage, sorted")
}
