package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/manifests"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	nodeCount = 2
	// nodeAddress is on the loopback interface, and so every pod reaches it through its bridge.
	nodeAddress = cluster.ServiceAddress

	// What make builds, and where images and logs go.
	workDir    = "bin/e2e"
	imagesPath = workDir + "/images.tar"
	logsPath   = workDir + "/logs"

	// shutdownGracePeriod is the kubelets', as in kubelet.yaml.
	shutdownGracePeriod = 30 * time.Second

	// nodeGracePeriod is what Kubernetes gives a silent node by default.
	nodeGracePeriod = 50 * time.Second
)

// prepare builds what a node of this machine needs, while this process still has the machine's network.
func prepare(ctx context.Context, chosen []scenario) error {
	if err := missing(); err != nil {
		return err
	}
	for _, s := range chosen {
		if s.get == nil {
			continue
		}
		if err := s.get(ctx); err != nil {
			return err
		}
	}
	if _, err := servers.Build(ctx, servers.NewProgress(os.Stdout)); err != nil {
		return err
	}
	if _, err := servers.Get(ctx, servers.Kubelet, os.Stdout); err != nil {
		return err
	}
	daemon, err := servers.Get(ctx, servers.KruiseDaemon, os.Stdout)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(logsPath); err != nil {
		return fmt.Errorf("removing the logs of the run before: %w", err)
	}
	if err := os.MkdirAll(logsPath, 0o755); err != nil {
		return fmt.Errorf("making the folder for logs: %w", err)
	}
	return writeImages(ctx, daemon)
}

// inside starts a cluster with two real nodes in the namespaces that this process is in, and plays there. The end of
// the process ends it all.
func inside(ctx context.Context, chosen []scenario) error {
	if err := furnish(ctx); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stdout, WithoutNodes: true, NodeGracePeriod: nodeGracePeriod})
	if err != nil {
		return err
	}
	defer c.Stop()
	logs, err := filepath.Abs(logsPath)
	if err != nil {
		return fmt.Errorf("finding the folder for logs: %w", err)
	}
	launcher := process.NewLauncher()
	defer launcher.Close()
	n, err := startNodes(ctx, c, launcher, logs)
	if err != nil {
		return err
	}
	if os.Getenv(envKubeconfig) == ownCluster {
		return remote(ctx, c.Kubeconfig())
	}
	registry, err := consul.Get(ctx, os.Stdout)
	if err != nil {
		return err
	}
	failures, err := os.Create(filepath.Join(logs, "failures.tsv"))
	if err != nil {
		return fmt.Errorf("making the list of failures: %w", err)
	}
	defer failures.Close()
	o := options{
		config: c.Config(), site: localSite{c, n}, built: workDir, registry: nodeAddress,
		program: registry.Paths[registries.Consul], dir: logs, scenarios: chosen, out: os.Stdout, failures: failures,
	}
	if os.Getenv(envServices) != "" {
		o.endpoints = c.PID("kube-controller-manager")
	}
	return play(ctx, o)
}

// startNodes starts the nodes, and leads their pods to the API server.
func startNodes(ctx context.Context, c *cluster.Cluster, l *process.Launcher, logs string) (*nodes, error) {
	api, err := url.Parse(c.Config().Host)
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	if _, err := openDoor(ctx, net.JoinHostPort(nodeAddress, "443"), api.Host); err != nil {
		return nil, err
	}
	kubelet, err := servers.Get(ctx, servers.Kubelet, os.Stdout)
	if err != nil {
		return nil, err
	}
	images, err := filepath.Abs(imagesPath)
	if err != nil {
		return nil, fmt.Errorf("finding the images: %w", err)
	}
	k8s := c.Client()
	n := &nodes{launcher: l, dir: logs, kubelet: kubelet, kubeconfig: c.Kubeconfig(), images: images}
	if err := n.start(ctx, k8s, nodeCount); err != nil {
		return nil, err
	}
	daemon, err := manifests.Decode(kruiseDaemonYAML)
	if err != nil {
		return nil, err
	}
	return n, manifests.Apply(ctx, k8s, fieldOwner, daemon)
}

// localSite is this machine: every process of every pod is one of its own.
type localSite struct {
	*cluster.Cluster

	nodes *nodes
}

// StopNode implements site.
func (s localSite) StopNode(ctx context.Context, name string) error {
	return errors.Join(s.nodes.kubelets[name].Pause(), s.nodes.tasks(ctx, name, "pause"))
}

// StartNode implements site.
func (s localSite) StartNode(ctx context.Context, name string) error {
	return errors.Join(s.nodes.tasks(ctx, name, "resume"), s.nodes.kubelets[name].Resume(), s.nodes.systems[name].shutDown(ctx, false))
}

// RestartKubelet implements site.
func (s localSite) RestartKubelet(ctx context.Context, node string) error {
	return s.nodes.restartKubelet(ctx, s.Client(), node)
}

// ShutNodeDown implements site.
func (s localSite) ShutNodeDown(ctx context.Context, name string) error {
	if err := s.nodes.systems[name].shutDown(ctx, true); err != nil {
		return err
	}
	wait.Pause(ctx, shutdownGracePeriod)
	return s.nodes.kubelets[name].Pause() // whose containers have ended
}

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
