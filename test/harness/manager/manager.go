// Package manager builds the manager and runs it outside the cluster, as a process that ends with the one that started it.
package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// The servers of a manager, by their names in its log.
const (
	MetricsServer = "metrics"
	HealthServer  = "health"
)

const (
	mainPackage = "github.com/rollcall-dev/rollcall/cmd"
	// faultBytes is how much of the log Fault returns.
	faultBytes = 6000
)

// Options say what to run.
type Options struct {
	// Name is the manager's in errors, and its log's: <name>.log. Empty: manager.
	Name string
	// Dir is where the configuration, the kubeconfig and the log go. It is created.
	Dir string
	// Path is the program, and Env all that it sees beside PATH, HOME and TMPDIR.
	Path string
	Env  []string
	// Flags come after those that every manager has: free ports for its servers, and no election.
	Flags []string
	// Config is the text of the configuration.
	Config string
	// WriteKubeconfig writes the kubeconfig.
	WriteKubeconfig func(path string) error
	// Launcher starts the processes; nil means one that ends with Stop.
	Launcher *process.Launcher
}

// Manager is one manager, through all of its restarts.
type Manager struct {
	Options

	own *process.Launcher

	mu      sync.Mutex
	running *process.Process
	logFrom int64 // where the log of the present process begins
}

// Build builds a main package into the file binary, with further flags of go build.
func Build(ctx context.Context, main, binary string, flags ...string) error {
	args := slices.Concat([]string{"build", "-buildvcs=false", "-o", binary}, flags, []string{main})
	build := exec.CommandContext(ctx, "go", args...)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	return nil
}

// Run builds the manager that ships, starts it in dir as the ServiceAccount that ships, and returns when it is ready. It
// outlives ctx: Stop ends it. The flags are those of Options.
func Run(ctx context.Context, admin *rest.Config, dir, config string, flags ...string) (*Manager, error) {
	binary := filepath.Join(dir, "manager")
	if err := Build(ctx, mainPackage, binary); err != nil {
		return nil, err
	}
	own, err := account.Install(ctx, admin)
	if err != nil {
		return nil, err
	}
	m, err := New(Options{
		Dir: dir, Path: binary, Flags: flags, Config: config,
		WriteKubeconfig: func(path string) error { return account.WriteKubeconfig(path, own) },
	})
	if err != nil {
		return nil, err
	}
	if err = m.Start(); err == nil {
		err = m.AwaitReady(ctx)
	}
	if err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

// New prepares a manager, which [Manager.Start] starts.
func New(o Options) (*Manager, error) {
	m := &Manager{Options: o}
	if m.Name == "" {
		m.Name = "manager"
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the folder of %s: %w", m.Name, err)
	}
	if err := m.Configure(m.Config); err != nil {
		return nil, err
	}
	if err := m.WriteKubeconfig(m.path("kubeconfig")); err != nil {
		return nil, err
	}
	if m.Launcher == nil {
		m.own = process.NewLauncher()
		m.Launcher = m.own
	}
	return m, nil
}

func (m *Manager) path(file string) string { return filepath.Join(m.Dir, file) }

// ConfigPath is the file with the configuration.
func (m *Manager) ConfigPath() string { return m.path("config.yaml") }

// LogPath is the file with what all processes of the manager wrote.
func (m *Manager) LogPath() string { return m.path(m.Name + ".log") }

// Configure writes the configuration, as a mounted ConfigMap changes: all at once. The manager reads it within two seconds.
func (m *Manager) Configure(text string) error {
	next := m.ConfigPath() + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of %s: %w", m.Name, err)
	}
	if err := os.Rename(next, m.ConfigPath()); err != nil {
		return fmt.Errorf("writing the configuration of %s: %w", m.Name, err)
	}
	return nil
}

// Start starts the process, and does not wait for it to be ready. The one before must have ended.
func (m *Manager) Start() error {
	var from int64
	before, err := os.Stat(m.LogPath())
	switch {
	case err == nil:
		from = before.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading the log of %s: %w", m.Name, err)
	}
	const free = "127.0.0.1:0"
	running, err := process.Start(m.Launcher, m.Dir, process.Command{Name: m.Name, Path: m.Path, Env: m.Env, Args: append([]string{
		"--config=" + m.ConfigPath(), "--kubeconfig=" + m.path("kubeconfig"), "--leader-elect=false",
		"--metrics-bind-address=" + free, "--health-probe-bind-address=" + free,
	}, m.Flags...)})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running, m.logFrom = running, from
	return nil
}

// Process is the present process, or the last one, or nil.
func (m *Manager) Process() *process.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// Kill ends the process with no chance to tidy up, and returns when it is gone.
func (m *Manager) Kill() {
	if running := m.Process(); running != nil {
		running.Kill()
	}
}

// Stop kills the process for good.
func (m *Manager) Stop() {
	m.Kill()
	if m.own != nil {
		m.own.Close()
		m.own = nil
	}
}

// AwaitReady returns once the manager says that it is ready.
func (m *Manager) AwaitReady(ctx context.Context) error {
	return m.Process().WaitReady(ctx, func(ctx context.Context) error {
		_, err := m.Get(ctx, HealthServer, "/readyz")
		return err
	})
}

// Get asks one of the servers of the present process.
func (m *Manager) Get(ctx context.Context, server, path string) (body string, err error) {
	url, err := m.URL(server, path)
	if err != nil {
		return "", err
	}
	text, err := (&registries.Client{URL: url, HTTP: http.DefaultClient}).Do(ctx, http.MethodGet, "", nil)
	return string(text), err
}

// URL finds in the log of the present process where one of its servers listens.
func (m *Manager) URL(server, path string) (string, error) {
	m.mu.Lock()
	from := m.logFrom
	m.mu.Unlock()
	log := m.Log()
	for line := range strings.Lines(log[min(from, int64(len(log))):]) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "listening" {
			continue
		}
		if address, ok := entry[server].(string); ok && address != "" {
			return "http://" + address + path, nil
		}
	}
	return "", fmt.Errorf("%s has not said where its %s server listens", m.Name, server)
}

// Log returns what the manager has written so far.
func (m *Manager) Log() string {
	data, err := os.ReadFile(m.LogPath())
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Tail is the end of the log.
func (m *Manager) Tail() string { return process.LogTail(m.LogPath()) }

// Fault is the first thing in the log that must never stand there, with what follows it; empty where there is none.
func (m *Manager) Fault() string {
	log := m.Log()
	first := -1
	for _, bad := range []string{"DATA RACE", "panic:", "Observed a panic", "fatal error:"} {
		if at := strings.Index(log, bad); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	if first < 0 {
		return ""
	}
	return log[first:min(len(log), first+faultBytes)]
}
