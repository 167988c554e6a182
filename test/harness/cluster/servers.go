package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
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
	kruiseModule = "github.com/openkruise/kruise"
	serversPath  = "test/harness/cluster/servers"
)

// Build makes sure that every server has its binary in the cache, and builds those that are missing. Progress goes to
// log, which may be nil. Processes that build at the same time wait for one another.
func Build(ctx context.Context, log io.Writer) error {
	_, err := binaries(ctx, newProgress(log))
	return err
}

// Kubelet returns the path of a kubelet that fits the control plane, and builds it if it is missing.
func Kubelet(ctx context.Context, log io.Writer) (string, error) {
	kubernetes, err := kubernetesModule(ctx)
	if err != nil {
		return "", err
	}
	kubernetes.Binaries = []cache.Binary{{Name: "kubelet", Package: "k8s.io/kubernetes/cmd/kubelet"}}
	built, err := cache.Build(ctx, newProgress(log), kubernetes)
	return built.Paths["kubelet"], err
}

// KruiseDaemon returns the path of OpenKruise's daemon, which restarts containers on a node, and builds it if it is missing.
func KruiseDaemon(ctx context.Context, log io.Writer) (string, error) {
	dir, err := cache.Dir(ctx, serversPath)
	if err != nil {
		return "", err
	}
	built, err := cache.Build(ctx, newProgress(log), cache.Module{
		Name: "kruise", Dir: filepath.Join(dir, kruiseFolder()), Requires: kruiseModule,
		Binaries: []cache.Binary{{Name: kruiseDaemon, Package: kruiseModule + "/cmd/daemon"}},
	})
	return built.Paths[kruiseDaemon], err
}

// Client returns the path of a client of the API server, kubectl or helm: the machine's own, or one that it builds.
func Client(ctx context.Context, name string, log io.Writer) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	m := cache.Module{
		Name: name, Requires: "k8s.io/kubernetes", LDFlags: kubernetesLDFlags,
		Binaries: []cache.Binary{{Name: name, Package: "k8s.io/kubernetes/cmd/kubectl"}},
	}
	folder := serversPath + "/kubectl"
	if name == "helm" {
		folder, m.Requires, m.LDFlags, m.Binaries[0].Package = "charts", "helm.sh/helm/v4", nil, "helm.sh/helm/v4/cmd/helm"
	}
	var err error
	if m.Dir, err = cache.Dir(ctx, folder); err != nil {
		return "", err
	}
	built, err := cache.Build(ctx, newProgress(log), m)
	return built.Paths[name], err
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
	kubernetes, err := kubernetesModule(ctx)
	if err != nil {
		return nil, err
	}
	return []cache.Module{
		etcdModule,
		{
			Name: "kwok", Dir: filepath.Join(dir, "kwok"), Requires: "sigs.k8s.io/kwok",
			Binaries: []cache.Binary{{Name: kwokServer, Package: "sigs.k8s.io/kwok/cmd/kwok"}},
		},
		{
			Name: "kruise", Dir: filepath.Join(dir, kruiseFolder()), Requires: kruiseModule,
			Binaries: []cache.Binary{{Name: kruiseManager, Package: kruiseModule}},
		},
		kubernetes,
	}, nil
}

// envKruise names an OpenKruise by its minor version, such as 1.9, in place of the one that the scenarios run on by default.
const envKruise = "KRUISE"

// kruiseFolder is where the OpenKruise to run is pinned.
func kruiseFolder() string {
	if version := os.Getenv(envKruise); version != "" {
		return "kruise-" + version
	}
	return "kruise"
}

func kubernetesModule(ctx context.Context) (cache.Module, error) {
	dir, err := cache.Dir(ctx, serversPath+"/kubernetes")
	return cache.Module{
		Name: "kubernetes", Dir: dir, Requires: "k8s.io/kubernetes", LDFlags: kubernetesLDFlags,
		Binaries: []cache.Binary{
			{Name: apiServer, Package: "k8s.io/kubernetes/cmd/kube-apiserver"},
			{Name: controllerManager, Package: "k8s.io/kubernetes/cmd/kube-controller-manager"},
			{Name: schedulerServer, Package: "k8s.io/kubernetes/cmd/kube-scheduler"},
		},
	}, err
}

// kubernetesLDFlags sets the version: what a module build says of itself is v0.0.0.
func kubernetesLDFlags(version string) string {
	const pkg = "k8s.io/component-base/version"
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		pkg, version, major, minor)
}
