// Package image makes container images of static binaries: nothing else is in them, and they need no container engine
// to be made.
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

// user is what the Dockerfile runs the manager as: a number, so that runAsNonRoot can be checked.
const user = "65532:65532"

// Spec says what is in an image.
type Spec struct {
	// Files are all that is in the image: by name, where each is on this machine. All of them can be run.
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
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return nil, fmt.Errorf("reading a file of the image: %w", err)
		}
		header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := w.Write(content); err != nil {
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
