// Command layout writes the image that ships, for several platforms, as an OCI layout, which crane, skopeo and others
// push:
//
//	go run ./hack/layout DIR CAS linux/amd64 linux/arm64
//
// The manager of each platform must be in DIR-binaries: linux/amd64/manager and so on, where make image builds them. CAS is
// the file with the CAs to trust.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/rollcall-dev/rollcall/hack/image"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: layout DIR CAS PLATFORM...")
		os.Exit(1)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "layout:", err)
		os.Exit(1)
	}
}

// write writes the image of the platforms into dir.
func write(dir, cas string, platforms []string) error {
	var images []v1.Image
	for _, name := range platforms {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return fmt.Errorf("reading platform %q: %w", name, err)
		}
		spec := image.Rollcall(filepath.Join(dir+"-binaries", name, "manager"), cas)
		spec.Platform = *platform
		made, err := image.New(spec)
		if err != nil {
			return fmt.Errorf("making the image for %s: %w", name, err)
		}
		images = append(images, made)
	}
	index, err := image.Index(images...)
	if err != nil {
		return err
	}
	// One entry, which names the images of all platforms: skopeo and crane push a layout of several only one by one.
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendIndex(index)
	}
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	return nil
}
