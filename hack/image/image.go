// Package image makes container images of a few files, such as static binaries: nothing else is in them, and they need no
// container engine to be made.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is a number, so that runAsNonRoot can be checked.
const user = "65532:65532"

// CAs is the file with the CAs to trust: Go reads it first, as Debian's programs do, and then every other file in its folder.
const CAs = "etc/ssl/certs/ca-certificates.crt"

// Rollcall is the image that ships, with this manager and these CAs. The Dockerfile makes the same.
func Rollcall(manager, cas string) Spec {
	return Spec{Files: map[string]string{"manager": manager, CAs: cas}, Entrypoint: "manager"}
}

// Spec says what is in an image.
type Spec struct {
	// Files are all that is in the image, besides their folders: by name, where each is on this machine. Everybody can read them,
	// and run what can be run.
	Files map[string]string
	// Entrypoint is the name of the file that the image runs, and Args come after it.
	Entrypoint string
	Args       []string
	// Platform is what the binaries were built for.
	Platform v1.Platform
	// Env is the environment: KEY=value.
	Env []string
}

// New makes the image. The same files always give the same image: nothing in it tells when it was made.
func New(s Spec) (v1.Image, error) {
	layer, err := layerOf(s.Files)
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, fmt.Errorf("adding the files to the image: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = s.Platform.OS, s.Platform.Architecture, s.Platform.Variant
	file.Config = v1.Config{
		User: user, Entrypoint: []string{path.Join("/", s.Entrypoint)}, Cmd: s.Args, Env: s.Env, WorkingDir: "/",
	}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return image, nil
}

func layerOf(files map[string]string) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range entries(files) {
		if err := pack(w, name, files[name]); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing the image's files: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making the image's layer: %w", err)
	}
	return layer, nil
}

// entries returns the names of the files, each after those of its folders: container engines make a folder that the layer
// lacks as they like, Docker without the right to enter it.
func entries(files map[string]string) []string {
	names := map[string]bool{}
	for name := range files {
		names[name] = true
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			names[dir+"/"] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// pack adds the file with the content of source, or a folder, which has none.
func pack(w *tar.Writer, name, source string) error {
	header := &tar.Header{Name: name, Mode: 0o755, ModTime: time.Unix(0, 0)}
	if source == "" {
		header.Typeflag = tar.TypeDir
		return w.WriteHeader(header)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.Mode()&0o100 == 0 { // the others depend on the umask of whoever made it
		header.Mode = 0o644
	}
	header.Size = int64(len(content))
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// Index makes one image of several platforms.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		file, err := image.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("reading the image's configuration: %w", err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: file.Platform()},
		})
	}
	return index, nil
}
