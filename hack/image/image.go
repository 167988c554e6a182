// Package image makes container images of one static binary each: nothing else is in them, and they need no container
// engine to be made.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
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
	// Binary is the file that becomes the only one in the image, and Name its name there.
	Binary, Name string
	// Platform is what the binary was built for.
	Platform v1.Platform
	// Args come after the entrypoint, which is the binary.
	Args []string
	// Env is the environment: KEY=value.
	Env []string
}

// New makes the image. The same binary always gives the same image: nothing in it tells when it was made.
func New(s Spec) (v1.Image, error) {
	content, err := os.ReadFile(s.Binary)
	if err != nil {
		return nil, fmt.Errorf("reading the binary of the image: %w", err)
	}
	layer, err := layerOf(s.Name, content)
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, fmt.Errorf("adding the binary to the image: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = s.Platform.OS, s.Platform.Architecture, s.Platform.Variant
	file.Config = v1.Config{User: user, Entrypoint: []string{path.Join("/", s.Name)}, Cmd: s.Args, Env: s.Env, WorkingDir: "/"}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return image, nil
}

func layerOf(name string, content []byte) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("packing %s: %w", name, err)
	}
	if _, err := w.Write(content); err != nil {
		return nil, fmt.Errorf("packing %s: %w", name, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing %s: %w", name, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making the layer of %s: %w", name, err)
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
