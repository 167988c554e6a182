package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "image")
	platforms := []string{"linux/amd64", "linux/arm/v7"}
	for _, platform := range platforms {
		binary := filepath.Join(dir+"-binaries", platform, "manager")
		expect.NoError(t, os.MkdirAll(filepath.Dir(binary), 0o755))
		expect.NoError(t, os.WriteFile(binary, []byte(platform), 0o700))
	}
	cas := filepath.Join(t.TempDir(), "cas")
	expect.NoError(t, os.WriteFile(cas, []byte("CAs"), 0o600))
	for range 2 { // the second time over the first
		expect.NoError(t, write(dir, cas, platforms))
	}
	whole, err := layout.ImageIndexFromPath(dir)
	expect.NoError(t, err)
	entries, err := whole.IndexManifest()
	expect.NoError(t, err)
	if len(entries.Manifests) != 1 {
		t.Fatalf("the layout has %d entries, want one: skopeo copy refuses more", len(entries.Manifests))
	}
	index, err := whole.ImageIndex(entries.Manifests[0].Digest)
	expect.NoError(t, err)
	manifest, err := index.IndexManifest()
	expect.NoError(t, err)
	for i, got := range manifest.Manifests {
		if got.Platform.String() != platforms[i] {
			t.Errorf("image %d is for %s, want %s", i, got.Platform, platforms[i])
		}
		want := map[string]string{"manager": platforms[i], "etc/ssl/certs/ca-certificates.crt": "CAs"}
		expect.Equal(t, want, filesOf(t, imageOf(t, whole, i)), "the files of the image for %s", platforms[i])
	}
	if len(manifest.Manifests) != len(platforms) {
		t.Errorf("there are %d images, want %d", len(manifest.Manifests), len(platforms))
	}
	expect.Error(t, "the binary is missing", write(dir, cas, []string{"linux/riscv64"}), "making the image for linux/riscv64")
	expect.Error(t, "the CAs are missing", write(dir, cas+"x", platforms), "making the image for linux/amd64")
}

// imageOf returns the image of the nth platform in the layout.
func imageOf(t *testing.T, whole v1.ImageIndex, n int) v1.Image {
	t.Helper()
	entries, err := whole.IndexManifest()
	expect.NoError(t, err)
	index, err := whole.ImageIndex(entries.Manifests[0].Digest)
	expect.NoError(t, err)
	manifest, err := index.IndexManifest()
	expect.NoError(t, err)
	image, err := index.Image(manifest.Manifests[n].Digest)
	expect.NoError(t, err)
	return image
}

// filesOf returns the content of each file in the image.
func filesOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	files := map[string]string{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		expect.NoError(t, err)
		if header.Typeflag == tar.TypeDir {
			continue
		}
		text, err := io.ReadAll(archive)
		expect.NoError(t, err)
		files[header.Name] = string(text)
	}
}
