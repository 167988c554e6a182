package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "image")
	platforms := []string{"linux/amd64", "linux/arm/v7"}
	for _, platform := range platforms {
		binary := filepath.Join(dir+"-binaries", platform, "manager")
		expect.NoError(t, os.MkdirAll(filepath.Dir(binary), 0o755))
		expect.NoError(t, os.WriteFile(binary, []byte(platform), 0o600))
	}
	for range 2 { // the second time over the first
		expect.NoError(t, write(dir, platforms))
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
	}
	if len(manifest.Manifests) != len(platforms) {
		t.Errorf("there are %d images, want %d", len(manifest.Manifests), len(platforms))
	}
	expect.Error(t, "the binary is missing", write(dir, []string{"linux/riscv64"}), "making the image for linux/riscv64")
}
