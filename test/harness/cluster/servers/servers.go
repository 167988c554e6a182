// Package servers has what the test cluster's servers are built from: the Go modules that are pinned in the folders beside
// this file. It imports little, because test/ready is compiled before anything tells what it takes.
package servers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// Names of the servers' binaries, which are also the names of their logs.
const (
	Etcd              = registries.Etcd
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	KruiseManager     = "kruise-manager"
	KWOK              = "kwok"
)

// Names of what only some tests need.
const (
	Kubelet      = "kubelet"
	KruiseDaemon = "kruise-daemon" // restarts containers on a node
	Rollouts     = "rollouts-manager"
	Kubectl      = "kubectl"
	Helm         = "helm"
)

const (
	kruisePackage      = "github.com/openkruise/kruise"
	rolloutsPackage    = "github.com/openkruise/rollouts"
	kubernetesCommands = "k8s.io/kubernetes/cmd/"
	path               = "test/harness/cluster/servers"
)

// Client returns the path of a client of the API server, kubectl or helm: the machine's own, or one that it builds.
func Client(ctx context.Context, name string, log io.Writer) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return Get(ctx, name, log)
}

// Get returns the path of the binary of an [Other], and builds it if it is missing.
func Get(ctx context.Context, name string, log io.Writer) (string, error) {
	m, err := Other(ctx, name)
	if err != nil {
		return "", err
	}
	built, err := cache.Build(ctx, NewProgress(log), m)
	return built.Paths[name], err
}

// Other is what a program is built from that not every cluster has: [Kubelet], [KruiseDaemon], [Rollouts], [Kubectl] or [Helm].
func Other(ctx context.Context, name string) (cache.Module, error) {
	switch name {
	case Helm:
		dir, err := cache.Dir(ctx, "charts")
		return cache.Module{
			Name: Helm, Dir: dir, Requires: "helm.sh/helm/v4", Idle: true,
			Binaries: []cache.Binary{{Name: Helm, Package: "helm.sh/helm/v4/cmd/helm", Packages: 1200}},
		}, err
	case Rollouts:
		dir, err := cache.Pinned(ctx, path, "rollouts")
		return cache.Module{
			Name: "rollouts", Dir: dir, Requires: rolloutsPackage, Idle: true,
			Binaries: []cache.Binary{{Name: Rollouts, Package: rolloutsPackage, Packages: 800}},
		}, err
	case KruiseDaemon:
		return Kruise(ctx, cache.Binary{Name: name, Package: kruisePackage + "/cmd/daemon"})
	case Kubelet:
		return kubernetes(ctx, cache.Binary{Name: name, Package: kubernetesCommands + name, Packages: 1800})
	default:
		return kubernetes(ctx, cache.Binary{Name: name, Package: kubernetesCommands + name, Packages: 900})
	}
}

// NewProgress is how the test cluster tells what it does.
func NewProgress(log io.Writer) *cache.Progress { return cache.NewProgress(log, "cluster") }

// Build returns the path of each server's binary by name, and builds those that are missing. Progress goes to log. Processes that
// build at the same time wait for one another.
func Build(ctx context.Context, log *cache.Progress) (paths map[string]string, err error) {
	modules, err := Modules(ctx)
	if err != nil {
		return nil, err
	}
	all, err := cache.BuildAll(ctx, log, modules...)
	paths = map[string]string{}
	for _, built := range all {
		maps.Copy(paths, built.Paths)
	}
	return paths, err
}

// Modules are those of the servers of a cluster.
func Modules(ctx context.Context) ([]cache.Module, error) {
	dir, err := cache.Dir(ctx, path)
	if err != nil {
		return nil, err
	}
	etcd, err := registries.Module(ctx, Etcd)
	if err != nil {
		return nil, err
	}
	etcd.Binaries[0].Published = publishedEtcd // a registry's takes its time from a test's clock, and is built
	kruise, err := Kruise(ctx, cache.Binary{Name: KruiseManager, Package: kruisePackage, Packages: 1600})
	if err != nil {
		return nil, err
	}
	control, err := kubernetes(ctx,
		cache.Binary{Name: APIServer, Package: kubernetesCommands + APIServer, Packages: 2100},
		cache.Binary{Name: ControllerManager, Package: kubernetesCommands + ControllerManager, Packages: 300},
		cache.Binary{Name: Scheduler, Package: kubernetesCommands + Scheduler, Packages: 50})
	if err != nil {
		return nil, err
	}
	return []cache.Module{
		etcd,
		{
			Name: "kwok", Dir: filepath.Join(dir, "kwok"), Requires: "sigs.k8s.io/kwok", Idle: true,
			Binaries: []cache.Binary{{Name: KWOK, Package: "sigs.k8s.io/kwok/cmd/kwok", Packages: 1000, Published: publishedKWOK}},
		},
		kruise,
		control,
	}, nil
}

// Kruise is the module that binaries of OpenKruise are built from.
func Kruise(ctx context.Context, binaries ...cache.Binary) (cache.Module, error) {
	dir, err := cache.Pinned(ctx, path, "kruise")
	return cache.Module{Name: "kruise", Dir: dir, Requires: kruisePackage, Idle: true, Binaries: binaries}, err
}

func kubernetes(ctx context.Context, binaries ...cache.Binary) (cache.Module, error) {
	dir, err := cache.Pinned(ctx, path, "kubernetes")
	for i := range binaries {
		binaries[i].Published = publishedKubernetes(binaries[i].Name)
	}
	return cache.Module{
		Name: "kubernetes", Dir: dir, Requires: "k8s.io/kubernetes", LDFlags: kubernetesLDFlags, Binaries: binaries,
	}, err
}

// kubernetesLDFlags sets the version: what a module build says of itself is v0.0.0. Kubernetes 1.26 takes what the API server answers
// from client-go's copy.
func kubernetesLDFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
			pkg, version, major, minor))
	}
	return strings.Join(flags, " ")
}

// Pin writes the checksums of what is published of the newest servers.
func Pin(ctx context.Context, log io.Writer) error {
	modules, err := Modules(ctx)
	if err != nil {
		return err
	}
	kubectl, err := Other(ctx, Kubectl)
	if err != nil {
		return err
	}
	return cache.Pin(ctx, NewProgress(log), append(modules, kubectl)...)
}

func publishedKubernetes(name string) func(version, arch string) cache.Published {
	return func(version, arch string) cache.Published {
		url := "https://dl.k8s.io/release/" + version + "/bin/linux/" + arch + "/" + name
		return cache.Published{URL: url, Sums: url + ".sha256"}
	}
}

func publishedEtcd(version, arch string) cache.Published {
	release, folder := "https://github.com/etcd-io/etcd/releases/download/"+version+"/", "etcd-"+version+"-linux-"+arch
	return cache.Published{URL: release + folder + ".tar.gz", Member: folder + "/etcd", Sums: release + "SHA256SUMS"}
}

func publishedKWOK(version, arch string) cache.Published {
	return cache.Published{URL: "https://github.com/kubernetes-sigs/kwok/releases/download/" + version + "/kwok-linux-" + arch}
}
