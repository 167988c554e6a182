package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
)

// managerMark in the environment turns this test binary into the manager: with markMain as its main runs it, with
// markLeaveNothing see [leaveNothing].
const (
	managerMark      = "ROLLCALL_INTEGRATION_MANAGER"
	markMain         = "main"
	markLeaveNothing = "leave-nothing"
)

const logTail = 6000

// manager is one Rollcall: a process that can be killed and started again.
type manager struct {
	name   string
	dir    string
	config string
	log    string
	proxy  *apiproxy.Proxy
	flags  []string
	mark   string

	mu      sync.Mutex
	logFrom int64 // where the log of the present process begins
	process *exec.Cmd
	done    chan struct{}
	err     error
}

// configuration is Rollcall's configuration file.
type configuration map[string]any

// defaultConfiguration is what every scenario has unless it says otherwise.
func defaultConfiguration(registryURL string, namespaces ...string) configuration {
	return configuration{
		"cluster":    clusterName,
		"namespaces": namespaces,
		"registry":   map[string]any{"driver": "http", "endpoint": registryURL, "timeout": "4s"},
		"hooks": map[string]any{
			"owned":        []string{"example.com/*", "example.io/*"},
			"newlyCreated": []string{"example.com/newly-create", "example.io/initialing"},
		},
		"service": map[string]any{"name": "{label:app}"},
		"drain":   "0s",
	}
}

// newManager prepares a manager that is not started yet, and reaches the API server as somebody.
func newManager(dir, name string, as *rest.Config, config configuration, flags ...string) (*manager, error) {
	m := &manager{name: name, dir: filepath.Join(dir, name), flags: flags, mark: markMain}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	m.config, m.log = filepath.Join(m.dir, "config.yaml"), filepath.Join(m.dir, "manager.log")
	if err := m.Configure(config); err != nil {
		return nil, err
	}
	var err error
	if m.proxy, err = apiproxy.Start(context.Background(), as, nil); err != nil {
		return nil, err
	}
	return m, m.proxy.WriteKubeconfig(filepath.Join(m.dir, "kubeconfig"))
}

// Configure writes the configuration file, as a mounted ConfigMap changes: by a rename.
func (m *manager) Configure(config configuration) error {
	data, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	return m.ConfigureText(string(data))
}

// ConfigureText is Configure for a text that need not be right.
func (m *manager) ConfigureText(text string) error {
	if err := os.WriteFile(m.config+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(m.config+".new", m.config)
}

// Start starts the process and does not wait for it to be ready.
func (m *manager) Start() error {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	before, err := log.Stat()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	self, err := os.Executable()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	cmd := exec.Command(self, append([]string{
		"--config=" + m.config,
		"--kubeconfig=" + filepath.Join(m.dir, "kubeconfig"),
		"--metrics-bind-address=127.0.0.1:0",
		"--health-probe-bind-address=127.0.0.1:0",
		"--registry-bind-address=127.0.0.1:0",
		"--leader-elect=false",
	}, m.flags...)...)
	cmd.Env = append(os.Environ(), managerMark+"="+m.mark, "GORACE=halt_on_error=0")
	cmd.Stdout, cmd.Stderr = log, log
	// The manager ends when its standard input does, so it never outlives this process.
	if _, err := cmd.StdinPipe(); err != nil {
		return errors.Join(err, log.Close())
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process, m.done, m.logFrom = cmd, make(chan struct{}), before.Size()
	go m.wait(cmd, m.done, log)
	return nil
}

func (m *manager) wait(cmd *exec.Cmd, done chan struct{}, log io.Closer) {
	err := cmd.Wait()
	_ = log.Close()
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
	close(done)
}

// Exited returns once the process has ended, with how it ended.
func (m *manager) Exited(ctx context.Context) error {
	m.mu.Lock()
	done := m.done
	m.mu.Unlock()
	select {
	case <-done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.err
	case <-ctx.Done():
		return fmt.Errorf("manager %s still runs: %w", m.name, ctx.Err())
	}
}

// Freeze stops the process from doing anything until Thaw, as a paused machine does.
func (m *manager) Freeze() error { return m.process.Process.Signal(syscall.SIGSTOP) }

// Thaw lets the process go on.
func (m *manager) Thaw() error { return m.process.Process.Signal(syscall.SIGCONT) }

// Terminate asks the process to stop, as kubelet does.
func (m *manager) Terminate() error { return m.process.Process.Signal(syscall.SIGTERM) }

// Kill ends the process with no chance to tidy up, and returns when it is gone.
func (m *manager) Kill() {
	m.mu.Lock()
	process, done := m.process, m.done
	m.mu.Unlock()
	if process == nil {
		return
	}
	_ = process.Process.Kill() // it may have ended by itself
	<-done
}

// AwaitReady returns once the manager says that it is ready.
func (m *manager) AwaitReady(ctx context.Context) error {
	var last error
	for {
		status, body, err := m.Get(ctx, healthServer, "/readyz")
		if err == nil && status == http.StatusOK {
			return nil
		}
		last = errors.Join(err, fmt.Errorf("readyz answers %d: %s", status, body))
		m.mu.Lock()
		done := m.done
		m.mu.Unlock()
		select {
		case <-done:
			return fmt.Errorf("manager %s ended before it was ready:\n%s", m.name, m.Tail())
		case <-ctx.Done():
			return fmt.Errorf("manager %s is not ready: %w\n%s", m.name, last, m.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// The servers of a manager, by their names in its log.
const (
	metricsServer = "metrics"
	healthServer  = "health"
	memoryServer  = "registry"
)

// Get asks one of the servers of the present process.
func (m *manager) Get(ctx context.Context, server, path string) (status int, body string, err error) {
	address, err := m.address(server)
	if err != nil {
		return 0, "", err
	}
	return get(ctx, "http://"+address+path)
}

// address finds where a server of the present process listens in its log.
func (m *manager) address(server string) (string, error) {
	m.mu.Lock()
	from := m.logFrom
	m.mu.Unlock()
	for line := range strings.Lines(m.Log()[from:]) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "listening" {
			continue
		}
		if address, ok := entry[server].(string); ok && address != "" {
			return address, nil
		}
	}
	return "", fmt.Errorf("manager %s has not said where its %s server listens", m.name, server)
}

// get reads a URL.
func get(ctx context.Context, url string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// Log returns what the process has written so far.
func (m *manager) Log() string {
	data, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Tail is the end of the log.
func (m *manager) Tail() string {
	log := m.Log()
	return log[max(0, len(log)-logTail):]
}

// Fault is the first thing in the log that must never stand there, with what follows it; empty where there is none.
func (m *manager) Fault() string {
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
	return log[first:min(len(log), first+logTail)]
}
