package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/rollcall-dev/rollcall/hack/image"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

const (
	nodeCount = 2
	// nodeAddress is on the loopback interface, and so every pod reaches it through its bridge.
	nodeAddress   = cluster.ServiceAddress
	rollcallImage = "localhost/rollcall:e2e"
	pauseImage    = "localhost/rollcall-e2e:pause"

	// What make builds, and where images and logs go.
	workDir      = "bin/e2e"
	managerPath  = "bin/manager"
	appPath      = workDir + "/app"
	imagesPath   = workDir + "/images.tar"
	manifestPath = workDir + "/rollcall.yaml"
	logsPath     = workDir + "/logs"
)

func appImage(version string) string { return "localhost/rollcall-e2e:" + version }

// prepare builds what is missing, while this process still has the machine's network.
func prepare(ctx context.Context) error {
	if err := missing(); err != nil {
		return err
	}
	if err := cluster.Build(ctx, os.Stdout); err != nil {
		return err
	}
	if _, err := cluster.Kubelet(ctx, os.Stdout); err != nil {
		return err
	}
	if _, err := consul.Get(ctx, os.Stdout); err != nil {
		return err
	}
	if err := os.RemoveAll(logsPath); err != nil {
		return fmt.Errorf("removing the logs of the run before: %w", err)
	}
	if err := os.MkdirAll(logsPath, 0o755); err != nil {
		return fmt.Errorf("making the folder for logs: %w", err)
	}
	return writeImages(imagesPath)
}

// writeImages writes an archive with the images of Rollcall, of both versions of the application, and of what holds a
// pod's network.
func writeImages(path string) error {
	images := map[name.Reference]v1.Image{}
	for ref, spec := range map[string]image.Spec{
		rollcallImage:  {Binary: managerPath, Name: "manager"},
		pauseImage:     {Binary: appPath, Name: "app", Args: []string{"pause"}},
		appImage("v1"): {Binary: appPath, Name: "app", Env: []string{"VERSION=v1"}},
		appImage("v2"): {Binary: appPath, Name: "app", Env: []string{"VERSION=v2"}},
	} {
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
	if err := tarball.MultiRefWriteToFile(path, images); err != nil {
		return fmt.Errorf("writing the images: %w", err)
	}
	return nil
}

// inside starts a cluster with two real nodes in the namespaces that this process is in, and plays there. The end of the
// process ends it all.
func inside(ctx context.Context, short bool) error {
	if err := furnish(ctx); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stdout, WithoutNodes: true})
	if err != nil {
		return err
	}
	defer c.Stop()
	api, err := url.Parse(c.Config().Host)
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	if _, err := openDoor(ctx, net.JoinHostPort(nodeAddress, "443"), api.Host); err != nil {
		return err
	}
	launcher := process.NewLauncher()
	defer launcher.Close()
	kubelet, err := cluster.Kubelet(ctx, os.Stdout)
	if err != nil {
		return err
	}
	registry, err := consul.Get(ctx, os.Stdout)
	if err != nil {
		return err
	}
	k8s, err := cluster.NewClient(c.Config())
	if err != nil {
		return err
	}
	logs, err := filepath.Abs(logsPath)
	if err != nil {
		return fmt.Errorf("finding the folder for logs: %w", err)
	}
	images, err := filepath.Abs(imagesPath)
	if err != nil {
		return fmt.Errorf("finding the images: %w", err)
	}
	n := &nodes{launcher: launcher, dir: logs, kubelet: kubelet, kubeconfig: c.Kubeconfig(), images: images}
	if err := n.start(ctx, k8s, nodeCount); err != nil {
		return err
	}
	failures, err := os.Create(filepath.Join(logs, "failures.tsv"))
	if err != nil {
		return fmt.Errorf("making the list of failures: %w", err)
	}
	defer failures.Close()
	return play(ctx, options{
		config: c.Config(), site: localSite{c}, manifest: manifestPath, registry: nodeAddress,
		consul: registry.Paths[consul.Binary], dir: logs, short: short, out: os.Stdout, failures: failures,
	})
}

// localSite is this machine: every process of every pod is one of its own.
type localSite struct{ *cluster.Cluster }

// StopKruise implements site.
func (s localSite) StopKruise(context.Context) error {
	s.Cluster.StopKruise()
	return nil
}

// KillManagers implements site.
func (localSite) KillManagers(context.Context) error {
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return fmt.Errorf("looking for managers: %w", err)
	}
	killed := 0
	for _, program := range programs {
		if path, err := os.Readlink(program); err != nil || path != "/manager" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(program)))
		if err != nil {
			return fmt.Errorf("reading %s: %w", program, err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("killing a manager: %w", err)
		}
		killed++
	}
	if killed == 0 {
		return errors.New("there was no manager to kill")
	}
	return nil
}
