package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	cniConf      = "/run/rollcall-e2e/cni"
	nodeBasePort = 10250
	// cgroup is the parent of all that containers get, below each hierarchy in cgroups.
	cgroup = "rollcall-e2e"
)

//go:embed node/containerd.toml
var containerdTOML string

//go:embed node/kubelet.yaml
var kubeletYAML string

// kruiseDaemonYAML is OpenKruise's own DaemonSet (config/manager/manager.yaml), for the images and the folders of these nodes.
//
//go:embed node/kruise-daemon.yaml
var kruiseDaemonYAML string

//go:embed node/cni.json
var cniJSON []byte

// missing says what this machine lacks for a node, and how to get it.
func missing() error {
	var lacks []string
	if os.Getuid() != 0 {
		lacks = append(lacks, "root")
	}
	packages := map[string]string{"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2"}
	for _, program := range slices.Sorted(maps.Keys(packages)) {
		if _, err := exec.LookPath(program); err != nil {
			lacks = append(lacks, fmt.Sprintf("%s (package %s)", program, packages[program]))
		}
	}
	if cniPlugins() == "" {
		lacks = append(lacks, "the CNI plugins bridge and host-local (package containernetworking-plugins)")
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("a node with containers needs %s: install what is missing, or set E2E_KUBECONFIG to run on "+
		"a cluster that you have", strings.Join(lacks, ", "))
}

// cniPlugins returns the folder with the plugins, where distributions put them, or nothing.
func cniPlugins() string {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		_, bridge := os.Stat(filepath.Join(dir, "bridge"))
		_, local := os.Stat(filepath.Join(dir, "host-local"))
		if bridge == nil && local == nil {
			return dir
		}
	}
	return ""
}

// nodes are real nodes: each has a containerd and a kubelet. They share one network, and so one bridge.
type nodes struct {
	launcher   *process.Launcher
	dir        string // for logs
	kubelet    string
	kubeconfig string
	images     string // an archive
	kubelets   map[string]*process.Process
	systems    map[string]*logind
}

// start starts n nodes and returns when they are Ready.
func (n *nodes) start(ctx context.Context, k8s client.Client, count int) error {
	if err := os.MkdirAll(cniConf, 0o755); err != nil {
		return fmt.Errorf("making the folder for CNI: %w", err)
	}
	if err := os.WriteFile(filepath.Join(cniConf, "10-bridge.conflist"), cniJSON, 0o600); err != nil {
		return fmt.Errorf("configuring CNI: %w", err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	n.kubelets, n.systems = map[string]*process.Process{}, map[string]*logind{}
	for i := range count {
		var err error
		if n.systems[nodeName(i)], err = startLogind(ctx, busOf(nodeName(i))); err != nil {
			return err
		}
	}
	kubelets := make([]*process.Process, count)
	for i := range count {
		group.Go(func() (err error) {
			kubelets[i], err = n.startOne(groupCtx, k8s, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, kubelet := range kubelets {
		n.kubelets[nodeName(i)] = kubelet
	}
	return nil
}

func nodeName(number int) string { return "node-" + strconv.Itoa(number) }

// busOf is the socket at which a node's kubelet finds the operating system.
func busOf(node string) string { return filepath.Join("/run", node+".bus") }

func runFolder(node string) string { return filepath.Join("/run", node) }

// tasks does something to each container on the node: pause or resume.
func (n *nodes) tasks(ctx context.Context, node, verb string) error {
	running, err := ctr(ctx, node, "tasks", "list", "--quiet")
	if err != nil {
		return err
	}
	for id := range strings.FieldsSeq(running) {
		if _, err := ctr(ctx, node, "tasks", verb, id); err != nil {
			return err
		}
	}
	return nil
}

// ctr runs containerd's command line on a node, and returns what it writes.
func ctr(ctx context.Context, node string, args ...string) (string, error) {
	args = append([]string{"--address=" + runFolder(node) + "/containerd.sock", "--namespace=k8s.io"}, args...)
	output, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

func (n *nodes) startOne(ctx context.Context, k8s client.Client, number int) (*process.Process, error) {
	name := nodeName(number)
	values := map[string]string{
		"Name": name, "Plugins": cniPlugins(), "CNI": cniConf, "PauseImage": pauseImage, "Cgroup": "/" + cgroup,
		"Port": strconv.Itoa(nodeBasePort + number),
		"Run":  runFolder(name), "Lib": filepath.Join("/var/lib", name), "Logs": filepath.Join(n.dir, "pods", name),
	}
	for _, dir := range []string{values["Run"], values["Lib"]} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making a folder of %s: %w", name, err)
		}
	}
	if err := n.startContainerd(ctx, values); err != nil {
		return nil, err
	}
	if _, err := write(kubeletConfig(name), kubeletYAML, values); err != nil {
		return nil, err
	}
	kubelet, err := n.startKubelet(name)
	if err != nil {
		return nil, err
	}
	return kubelet, kubelet.WaitReady(ctx, func(ctx context.Context) error { return nodeReady(ctx, k8s, name) })
}

func kubeletConfig(node string) string { return filepath.Join(runFolder(node), "kubelet.yaml") }

func (n *nodes) startKubelet(node string, more ...string) (*process.Process, error) {
	args := append([]string{
		"--config=" + kubeletConfig(node), "--kubeconfig=" + n.kubeconfig, "--hostname-override=" + node,
		"--root-dir=" + filepath.Join("/var/lib", node, "kubelet"), "--node-ip=" + nodeAddress, "--v=2",
	}, more...)
	return process.Start(n.launcher, n.dir, process.Command{
		Name: "kubelet-" + node, Path: n.kubelet, Args: args, Env: []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + busOf(node)},
	})
}

// restartKubelet restarts the node's kubelet, which leaves containers as they are. From 1.35 on it makes a pod unready only with a gate.
func (n *nodes) restartKubelet(ctx context.Context, k8s client.Client, name string) error {
	node := &corev1.Node{}
	if err := k8s.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	kubelet, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return fmt.Errorf("reading the version of kubelet: %w", err)
	}
	var gates []string
	if kubelet.AtLeast(version.MustParseGeneric("1.35")) {
		gates = append(gates, "--feature-gates=ChangeContainerStatusOnKubeletRestart=true")
	}
	n.kubelets[name].Kill()
	n.kubelets[name], err = n.startKubelet(name, gates...)
	return err
}

// startContainerd starts the node's containerd and gives it the images.
func (n *nodes) startContainerd(ctx context.Context, values map[string]string) error {
	config, err := write(filepath.Join(values["Run"], "containerd.toml"), containerdTOML, values)
	if err != nil {
		return err
	}
	containerd, err := process.Start(n.launcher, n.dir, process.Command{
		Name: "containerd-" + values["Name"], Path: "containerd", Args: []string{"--config=" + config},
	})
	if err != nil {
		return err
	}
	answers := func(ctx context.Context) error {
		_, err := ctr(ctx, values["Name"], "version")
		return err
	}
	if err := containerd.WaitReady(ctx, answers); err != nil {
		return err
	}
	_, err = ctr(ctx, values["Name"], "images", "import", n.images)
	return err
}

func nodeReady(ctx context.Context, k8s client.Client, name string) error {
	var node corev1.Node
	if err := k8s.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	return cluster.NodeReady(&node)
}

// write fills a template in and writes it to a file.
func write(path, text string, values map[string]string) (string, error) {
	parsed, err := template.New(filepath.Base(path)).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("reading the template of %s: %w", path, err)
	}
	var filled strings.Builder
	if err := parsed.Execute(&filled, values); err != nil {
		return "", fmt.Errorf("filling in %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(filled.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return path, nil
}
