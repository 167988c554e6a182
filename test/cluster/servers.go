package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Names of the servers' binaries, which are also the names of their logs.
const (
	etcdServer        = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	schedulerServer   = "kube-scheduler"
	kruiseManager     = "kruise-manager"
	kwokServer        = "kwok"
)

const kruiseModule = "github.com/openkruise/kruise"

// serverModule is a folder of servers/: one go.mod that pins the version of the binaries built in it.
type serverModule struct {
	name     string
	requires string // the module whose version is the servers' version
	ldflags  func(version string) string
	servers  []server
}

// server is one binary.
type server struct {
	name string
	pkg  string
	// reported extracts the version from what the binary prints for --version. Only a server that has it is taken from
	// KUBEBUILDER_ASSETS or PATH.
	reported func(output string) string
}

func serverModules() []serverModule {
	return []serverModule{
		{
			name: "etcd", requires: "go.etcd.io/etcd/server/v3", ldflags: stripped,
			servers: []server{{name: etcdServer, pkg: "go.etcd.io/etcd/server/v3", reported: etcdVersion}},
		},
		{
			name: "kwok", requires: "sigs.k8s.io/kwok", ldflags: stripped,
			servers: []server{{name: kwokServer, pkg: "sigs.k8s.io/kwok/cmd/kwok"}},
		},
		{
			name: "kruise", requires: kruiseModule, ldflags: stripped,
			servers: []server{{name: kruiseManager, pkg: kruiseModule}},
		},
		{
			name: "kubernetes", requires: "k8s.io/kubernetes", ldflags: kubernetesLDFlags,
			servers: []server{
				{name: apiServer, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", reported: kubernetesVersion},
				{name: controllerManager, pkg: "k8s.io/kubernetes/cmd/kube-controller-manager"},
				{name: schedulerServer, pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
			},
		},
	}
}

func stripped(string) string { return "-s -w" }

// kubernetesLDFlags also sets the version: what a module build says of itself is v0.0.0.
func kubernetesLDFlags(version string) string {
	const pkg = "k8s.io/component-base/version"
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		pkg, version, major, minor)
}

// kubernetesVersion reads "Kubernetes v1.34.4".
func kubernetesVersion(output string) string {
	version, _ := strings.CutPrefix(strings.TrimSpace(output), "Kubernetes ")
	return version
}

// etcdVersion reads "etcd Version: 3.6.16", the first of several lines.
func etcdVersion(output string) string {
	line, _, _ := strings.Cut(output, "\n")
	number, found := strings.CutPrefix(strings.TrimSpace(line), "etcd Version: ")
	if !found {
		return ""
	}
	return "v" + number
}

// serversDir finds the folder servers/ beside this file, or, where the build dropped its path (-trimpath), below the
// main module of the working directory.
func serversDir(ctx context.Context) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "servers")
	if _, err := os.Stat(filepath.Join(dir, "etcd", "go.mod")); err == nil {
		return dir, nil
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the pinned versions of the servers: run this inside the checkout of rollcall: %w",
			withStderr(err))
	}
	dir = filepath.Join(strings.TrimSpace(string(out)), "test", "cluster", "servers")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("finding the pinned versions of the servers: run this inside the checkout of rollcall: %w", err)
	}
	return dir, nil
}

// pinnedVersion reads the version of a server module's requirement from its go.mod.
func pinnedVersion(ctx context.Context, dir, requires string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	if err != nil {
		return "", fmt.Errorf("reading %s/go.mod: %w", dir, withStderr(err))
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("reading %s/go.mod: %w", dir, err)
	}
	for _, r := range mod.Require {
		if r.Path == requires {
			return r.Version, nil
		}
	}
	return "", fmt.Errorf("reading %s/go.mod: it requires no %s", dir, requires)
}

// moduleDir returns the folder of a module in the module cache, downloading it if need be.
func moduleDir(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = dir
	cmd.Env = goEnv(os.Environ())
	out, err := cmd.Output()
	var info struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &info); jsonErr == nil && info.Error != "" {
		return "", fmt.Errorf("downloading %s: %s", module, info.Error)
	}
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w", module, withStderr(err))
	}
	return info.Dir, nil
}

// withStderr adds what a command wrote to its error output.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
