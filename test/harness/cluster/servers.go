package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// Names of the servers' binaries, which are also the names of their logs.
const (
	etcdServer        = etcd.Binary
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	schedulerServer   = "kube-scheduler"
	kruiseManager     = "kruise-manager"
	kruiseDaemon      = "kruise-daemon"
	kwokServer        = "kwok"
)

const (
	kruisePackage = "github.com/openkruise/kruise"
	serversPath   = "test/harness/cluster/servers"
)

// Build makes sure that every server has its binary in the cache, and builds those that are missing. Progress goes to
// log, which may be nil. Processes that build at the same time wait for one another.
func Build(ctx context.Context, log io.Writer) error {
	_, err := binaries(ctx, newProgress(log))
	return err
}

// Kubelet returns the path of a kubelet that fits the control plane, and builds it if it is missing.
func Kubelet(ctx context.Context, log io.Writer) (string, error) {
	return buildOne(ctx, log, kubernetesModule, cache.Binary{Name: "kubelet", Package: "k8s.io/kubernetes/cmd/kubelet"})
}

// KruiseDaemon returns the path of OpenKruise's daemon, which restarts containers on a node, and builds it if it is missing.
func KruiseDaemon(ctx context.Context, log io.Writer) (string, error) {
	return buildOne(ctx, log, kruiseModule, cache.Binary{Name: kruiseDaemon, Package: kruisePackage + "/cmd/daemon"})
}

// Client returns the path of a client of the API server, kubectl or helm: the machine's own, or one that it builds.
func Client(ctx context.Context, name string, log io.Writer) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if name == "helm" {
		return buildOne(ctx, log, helmModule, cache.Binary{Name: name, Package: "helm.sh/helm/v4/cmd/helm"})
	}
	return buildOne(ctx, log, kubernetesModule, cache.Binary{Name: name, Package: "k8s.io/kubernetes/cmd/kubectl"})
}

// buildOne returns the path of one binary of a module, and builds it if it is missing.
func buildOne(ctx context.Context, log io.Writer, module func(context.Context, ...cache.Binary) (cache.Module, error),
	binary cache.Binary,
) (string, error) {
	m, err := module(ctx, binary)
	if err != nil {
		return "", err
	}
	built, err := cache.Build(ctx, newProgress(log), m)
	return built.Paths[binary.Name], err
}

func newProgress(log io.Writer) *cache.Progress { return cache.NewProgress(log, "cluster") }

// binaries returns the path of each server's binary by name.
func binaries(ctx context.Context, log *cache.Progress) (map[string]string, error) {
	modules, err := serverModules(ctx)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, m := range modules {
		built, err := cache.Build(ctx, log, m)
		if err != nil {
			return nil, err
		}
		maps.Copy(paths, built.Paths)
	}
	return paths, nil
}

func serverModules(ctx context.Context) ([]cache.Module, error) {
	dir, err := cache.Dir(ctx, serversPath)
	if err != nil {
		return nil, err
	}
	etcdModule, err := etcd.Module(ctx)
	if err != nil {
		return nil, err
	}
	kruise, err := kruiseModule(ctx, cache.Binary{Name: kruiseManager, Package: kruisePackage})
	if err != nil {
		return nil, err
	}
	kubernetes, err := kubernetesModule(ctx,
		cache.Binary{Name: apiServer, Package: "k8s.io/kubernetes/cmd/kube-apiserver"},
		cache.Binary{Name: controllerManager, Package: "k8s.io/kubernetes/cmd/kube-controller-manager"},
		cache.Binary{Name: schedulerServer, Package: "k8s.io/kubernetes/cmd/kube-scheduler"})
	if err != nil {
		return nil, err
	}
	return []cache.Module{
		etcdModule,
		{
			Name: "kwok", Dir: filepath.Join(dir, "kwok"), Requires: "sigs.k8s.io/kwok", Idle: true,
			Binaries: []cache.Binary{{Name: kwokServer, Package: "sigs.k8s.io/kwok/cmd/kwok"}},
		},
		kruise,
		kubernetes,
	}, nil
}

func kruiseModule(ctx context.Context, binaries ...cache.Binary) (cache.Module, error) {
	dir, err := cache.Pinned(ctx, serversPath, "kruise")
	return cache.Module{Name: "kruise", Dir: dir, Requires: kruisePackage, Idle: true, Binaries: binaries}, err
}

func kubernetesModule(ctx context.Context, binaries ...cache.Binary) (cache.Module, error) {
	dir, err := cache.Pinned(ctx, serversPath, "kubernetes")
	return cache.Module{
		Name: "kubernetes", Dir: dir, Requires: "k8s.io/kubernetes", LDFlags: kubernetesLDFlags, Binaries: binaries,
	}, err
}

func helmModule(ctx context.Context, binaries ...cache.Binary) (cache.Module, error) {
	dir, err := cache.Dir(ctx, "charts")
	return cache.Module{Name: "helm", Dir: dir, Requires: "helm.sh/helm/v4", Idle: true, Binaries: binaries}, err
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
