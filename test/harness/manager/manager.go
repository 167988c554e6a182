// Package manager builds the manager and runs it outside the cluster, as a process that ends with the one that started it.
package manager

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const mainPackage = "github.com/rollcall-dev/rollcall/cmd"

// Options say what to run.
type Options struct {
	// Dir is where the binary, the configuration and the log go. It must be there.
	Dir string
	// Admin leads to the cluster. The manager runs as the ServiceAccount that ships, which [account.Install] makes.
	Admin *rest.Config
	// Config is the text of the configuration.
	Config string
}

// Manager is a running manager.
type Manager struct {
	*process.Process
	// RegistryURL lists the registry inside the manager, which only the memory driver has.
	RegistryURL string
	MetricsURL  string

	config   string
	ready    string
	launcher *process.Launcher
}

// Build builds the manager into the file binary, with further flags of go build.
func Build(ctx context.Context, binary string, flags ...string) error {
	return BuildOf(ctx, mainPackage, binary, flags...)
}

// BuildOf builds a manager with a main package of its own.
func BuildOf(ctx context.Context, main, binary string, flags ...string) error {
	args := slices.Concat([]string{"build", "-buildvcs=false", "-o", binary}, flags, []string{main})
	build := exec.CommandContext(ctx, "go", args...)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	return nil
}

// Start builds the manager, starts it and returns when it is ready. It outlives ctx: Stop ends it.
func Start(ctx context.Context, o Options) (*Manager, error) {
	binary := filepath.Join(o.Dir, "manager")
	if err := Build(ctx, binary); err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	metrics, health, registry := local(ports[0]), local(ports[1]), local(ports[2])
	m := &Manager{
		config: filepath.Join(o.Dir, "config.yaml"), ready: "http://" + health + "/readyz", launcher: process.NewLauncher(),
		MetricsURL: "http://" + metrics + "/metrics", RegistryURL: "http://" + registry + "/v1/instances",
	}
	kubeconfig := filepath.Join(o.Dir, "kubeconfig")
	if err := m.start(ctx, o, kubeconfig, process.Command{Name: "manager", Path: binary, Args: []string{
		"--config=" + m.config, "--kubeconfig=" + kubeconfig, "--leader-elect=false",
		"--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + health, "--registry-bind-address=" + registry,
	}}); err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

func (m *Manager) start(ctx context.Context, o Options, kubeconfig string, command process.Command) error {
	if err := m.Configure(o.Config); err != nil {
		return err
	}
	own, err := account.Install(ctx, o.Admin)
	if err != nil {
		return err
	}
	if err := account.WriteKubeconfig(kubeconfig, own); err != nil {
		return err
	}
	if m.Process, err = process.Start(m.launcher, o.Dir, command); err != nil {
		return err
	}
	return m.WaitReady(ctx, m.askReady)
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func (m *Manager) askReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.ready, nil)
	if err != nil {
		return fmt.Errorf("asking the manager: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the manager: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", m.ready, response.Status)
	}
	return nil
}

// Configure writes the configuration, as a mounted ConfigMap changes: all at once. The manager reads it within two seconds.
func (m *Manager) Configure(text string) error {
	if err := os.WriteFile(m.config+".new", []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the manager's configuration: %w", err)
	}
	if err := os.Rename(m.config+".new", m.config); err != nil {
		return fmt.Errorf("writing the manager's configuration: %w", err)
	}
	return nil
}

// Log returns the end of what the manager has written.
func (m *Manager) Log() string { return process.LogTail(m.LogPath()) }

// Stop ends the manager, with no chance to tidy up.
func (m *Manager) Stop() {
	if m.Process != nil {
		m.Kill()
	}
	m.launcher.Close()
}
