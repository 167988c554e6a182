package main

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/rollcall-dev/rollcall/hack/image"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
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

// What make builds, and writeImages: the CAs of the released image, and Consul's certificate.
const (
	publicCAs = "bin/ca-certificates.crt"
	pkiFolder = "pki"
	caFile    = pkiFolder + "/ca.crt"
	certFile  = pkiFolder + "/consul.crt"
	keyFile   = pkiFolder + "/consul.key"
)

func appImage(version string) string { return "localhost/rollcall-e2e:" + version }

// writeImages writes an archive with the images of Rollcall, of both versions of the application, of what holds a pod's
// network, of this program with a Consul, and of OpenKruise's daemon, whose path is empty where the nodes have one.
func writeImages(ctx context.Context, daemon string) error {
	registry, err := consul.Get(ctx, os.Stdout)
	if err != nil {
		return err
	}
	cas, err := trustedCAs()
	if err != nil {
		return err
	}
	// A company adds its CA to the file, as here, or as a file beside it.
	next := image.Rollcall(workDir+"/manager-next", publicCAs)
	next.Files[path.Dir(image.CAs)+"/company.crt"] = workDir + "/" + caFile
	app := map[string]string{"app": workDir + "/app"}
	specs := map[string]image.Spec{
		rollcallImage:  image.Rollcall("bin/manager", cas),
		nextImage:      next,
		pauseImage:     {Files: app, Entrypoint: "app", Args: []string{"pause"}},
		appImage("v1"): {Files: app, Entrypoint: "app", Env: []string{"VERSION=v1"}},
		appImage("v2"): {Files: app, Entrypoint: "app", Env: []string{"VERSION=v2"}},
		runnerImage: {Entrypoint: "e2e", Args: []string{inPodArg}, Files: map[string]string{
			"e2e": workDir + "/e2e", "consul": registry.Paths[registries.Consul],
			rollcallManifest: workDir + "/" + rollcallManifest, evictionsManifest: workDir + "/" + evictionsManifest,
			caFile: workDir + "/" + caFile, certFile: workDir + "/" + certFile, keyFile: workDir + "/" + keyFile,
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

// trustedCAs issues Consul's certificate, by a CA of the tests, and returns the file with that CA and the public ones.
func trustedCAs() (string, error) {
	folder := filepath.Join(workDir, pkiFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("making the folder for certificates: %w", err)
	}
	authority, err := pki.NewAuthority(folder, "rollcall-e2e")
	if err != nil {
		return "", err
	}
	if _, err := authority.Issue("consul", pkix.Name{CommonName: registryName}, registryName); err != nil {
		return "", err
	}
	public, err := os.ReadFile(publicCAs)
	if err != nil {
		return "", fmt.Errorf("reading the image's CAs: %w", err)
	}
	file := filepath.Join(workDir, filepath.Base(publicCAs))
	if err := os.WriteFile(file, append(public, authority.CertPEM...), 0o600); err != nil {
		return "", fmt.Errorf("writing the image's CAs: %w", err)
	}
	return file, nil
}
