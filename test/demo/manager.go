package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/test/traffic"
)

const (
	// drain exceeds all that a client may be behind: one refresh of what it knows, and one request.
	drain = 2 * (traffic.RefreshEvery + traffic.RequestTimeout)

	managerPackage = "github.com/rollcall-dev/rollcall/cmd"
	readyPoll      = 100 * time.Millisecond
	readyTimeout   = time.Minute
	// stopTimeout is how long the manager may take to end before it is killed.
	stopTimeout = 10 * time.Second
	// tailLines and tailBytes are how much of the manager's log is shown when something fails.
	tailLines, tailBytes = 40, 16 << 10

	// The ports below those that the kernel gives to outgoing connections: the client's are many.
	firstPort, lastPort = 20000, 32767
	portAttempts        = 100
)

// manager is the real manager, running outside the cluster.
type manager struct {
	registryURL string // of its own view, which only the memory driver has
	metricsURL  string
	probes      string // its address
	logPath     string
	process     *os.Process
	done        chan struct{} // closed when it has ended
	err         error         // how it ended; read after done
}

// startManager builds the manager, starts it in dir and returns when it is ready. The calling goroutine must hold its
// thread: the kernel kills the manager when that thread ends.
func startManager(ctx context.Context, dir, kubeconfig, section string) (*manager, error) {
	binary := filepath.Join(dir, "manager")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, managerPackage)
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(managerConfig(section)), 0o600); err != nil {
		return nil, fmt.Errorf("writing the manager's configuration: %w", err)
	}
	addresses, err := freeAddresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	m := &manager{
		metricsURL: "http://" + addresses[0] + "/metrics", probes: addresses[1],
		registryURL: "http://" + addresses[2] + "/v1/instances", logPath: filepath.Join(dir, "manager.log"), done: make(chan struct{}),
	}
	if err := m.launch(binary, "--config="+config, "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--metrics-bind-address="+addresses[0], "--health-probe-bind-address="+addresses[1],
		"--registry-bind-address="+addresses[2]); err != nil {
		return nil, err
	}
	if err := m.waitReady(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, m.tail())
		m.stop()
		return nil, err
	}
	return m, nil
}

func managerConfig(section string) string {
	return fmt.Sprintf(`cluster: demo
registry: %s
hooks:
  owned: [example.com/*]
service:
  name: "{label:app}"
drain: %s
`, section, drain)
}

func (m *manager) launch(binary string, args ...string) error {
	log, err := os.Create(m.logPath)
	if err != nil {
		return fmt.Errorf("opening the manager's log: %w", err)
	}
	defer log.Close()
	// No context: it would be killed where it shall end by itself.
	command := exec.Command(binary, args...) //nolint:noctx // see above
	command.Dir = filepath.Dir(binary)
	// No proxy and no other cluster of the user's gets in.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + command.Dir}
	command.Stdout, command.Stderr = log, log
	dieWithParent(command)
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	m.process = command.Process
	go func() {
		m.err = command.Wait()
		close(m.done)
	}()
	return nil
}

func (m *manager) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		err := askReady(ctx, "http://"+m.probes+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-m.done:
			return m.crash()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the manager to be ready: %w: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

func askReady(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking the manager: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the manager: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// crash says how the manager ended, once done is closed.
func (m *manager) crash() error {
	if m.err == nil {
		return errors.New("the manager ended by itself")
	}
	return fmt.Errorf("the manager ended by itself: %w", m.err)
}

// stop lets the manager end, and kills it if that takes too long. It returns when the manager has ended.
func (m *manager) stop() {
	_ = m.process.Signal(syscall.SIGTERM)
	select {
	case <-m.done:
		return
	case <-time.After(stopTimeout):
	}
	_ = m.process.Kill()
	<-m.done
}

// tail returns the end of the manager's log under a heading.
func (m *manager) tail() string {
	file, err := os.Open(m.logPath)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = file.Seek(-tailBytes, io.SeekEnd)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "The end of the manager's log:\n  " + strings.Join(lines, "\n  ")
}

// freeAddresses returns n different loopback addresses that nothing listens on.
func freeAddresses(ctx context.Context, n int) ([]string, error) {
	var addresses []string
	var config net.ListenConfig
	for range portAttempts {
		if len(addresses) == n {
			return addresses, nil
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		listener, err := config.Listen(ctx, "tcp4", address)
		if err != nil {
			continue
		}
		// Held until all are found, so that they differ.
		defer listener.Close()
		addresses = append(addresses, address)
	}
	return nil, fmt.Errorf("finding %d free ports between %d and %d: found %d", n, firstPort, lastPort, len(addresses))
}
