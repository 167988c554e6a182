package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/rollcall-dev/rollcall/hack/image"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

const (
	rollcallImage = "localhost/rollcall:e2e"
	nextImage     = "localhost/rollcall:e2e-next" // writes records of a later version
	daemonImage   = "localhost/rollcall-e2e:kruise-daemon"
	pauseImage    = "localhost/rollcall-e2e:pause"
	runnerImage   = "localhost/rollcall-e2e:runner"
)

func appImage(version string) string { return "localhost/rollcall-e2e:" + version }

// writeImages writes an archive with the images of Rollcall, of both versions of the application, of what holds a pod's
// network, of this program with a Consul, and of OpenKruise's daemon, whose path is empty where the nodes have one.
func writeImages(ctx context.Context, daemon string) error {
	registry, err := consul.Get(ctx, os.Stdout)
	if err != nil {
		return err
	}
	app := map[string]string{"app": workDir + "/app"}
	specs := map[string]image.Spec{
		rollcallImage:  {Files: map[string]string{"manager": "bin/manager"}, Entrypoint: "manager"},
		nextImage:      {Files: map[string]string{"manager": workDir + "/manager-next"}, Entrypoint: "manager"},
		pauseImage:     {Files: app, Entrypoint: "app", Args: []string{"pause"}},
		appImage("v1"): {Files: app, Entrypoint: "app", Env: []string{"VERSION=v1"}},
		appImage("v2"): {Files: app, Entrypoint: "app", Env: []string{"VERSION=v2"}},
		runnerImage: {Entrypoint: "e2e", Args: []string{inPodArg}, Files: map[string]string{
			"e2e": workDir + "/e2e", "consul": registry.Paths[registries.Consul],
			rollcallManifest: workDir + "/" + rollcallManifest, evictionsManifest: workDir + "/" + evictionsManifest,
		}},
	}
	if daemon != "" {
		specs[daemonImage] = image.Spec{Files: map[string]string{"kruise-daemon": daemon}, Entrypoint: "kruise-daemon"}
	}
	images := map[name.Reference]v1.Image{}
	for ref, spec := range specs {
		spec.Platform = v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
		made, err := image.New(spec)
		if err != nil {
			return err
		}
		parsed, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("naming an image: %w", err)
		}
		images[parsed] = made
	}
	if err := tarball.MultiRefWriteToFile(imagesPath, images); err != nil {
		return fmt.Errorf("writing the images: %w", err)
	}
	return nil
}
