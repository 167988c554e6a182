package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/test/process"
)

const (
	callTimeout    = 2 * time.Second
	resyncInterval = 10 * time.Second
	drainTime      = time.Second
	// leaseAlive is how long after a renewal a manager counts as the leader.
	leaseAlive = 5 * time.Second
	// restartAfter is how long a manager that has ended stays away.
	restartAfter = 500 * time.Millisecond
)

// managers are two that share a lease. Each is started again whenever it has ended.
type managers struct {
	all  []*contender
	stop context.CancelFunc
	done sync.WaitGroup
}

// contender is one of them, through all of its restarts.
type contender struct {
	name  string
	proxy *apiProxy
	start func() (*process.Process, error)
	out   *output

	mu      sync.Mutex
	process *process.Process
	paused  bool
	asked   bool // to end
	panics  []string
}

// startManagers starts two managers of a binary.
func startManagers(
	ctx context.Context, launcher *process.Launcher, dir, binary, registryAddress string, api *rest.Config, j *journal, out *output,
) (*managers, error) {
	ctx, stop := context.WithCancel(ctx)
	m := &managers{stop: stop}
	for _, name := range []string{"m1", "m2"} {
		one, err := newContender(ctx, launcher, filepath.Join(dir, name), name, binary, registryAddress, api, j, out)
		if err != nil {
			m.Stop()
			return nil, err
		}
		m.all = append(m.all, one)
		m.done.Go(func() { one.keep(ctx) })
	}
	return m, nil
}

func newContender(
	ctx context.Context, launcher *process.Launcher, dir, name, binary, registryAddress string, api *rest.Config, j *journal, out *output,
) (*contender, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the folder of manager %s: %w", name, err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(configuration("http://"+registryAddress+"/"+name)), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration of manager %s: %w", name, err)
	}
	proxy, err := startAPIProxy(ctx, name, api, j)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := proxy.kubeconfig(kubeconfig); err != nil {
		proxy.Stop()
		return nil, err
	}
	return &contender{name: name, proxy: proxy, out: out, start: func() (*process.Process, error) {
		return process.Start(launcher, dir, process.Command{Name: name, Path: binary, Args: []string{
			"--config=" + config, "--kubeconfig=" + kubeconfig,
			"--leader-elect=true", "--leader-election-namespace=" + leaseNamespace, "--leader-election-id=" + leaseName,
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--registry-bind-address=0",
		}})
	}}, nil
}

func configuration(endpoint string) string {
	return fmt.Sprintf(`cluster: %s
registry:
  driver: http
  endpoint: %s
  timeout: %s
hooks:
  owned: [example.com/*, example.io/*]
  newlyCreated: [%s, %s]
drain: %s
resync: {interval: %s, maxRemovals: 60%%}
`, clusterName, endpoint, callTimeout, markLabel, markAnnotation, drainTime, resyncInterval)
}

// keep starts the manager whenever it does not run, until the context ends.
func (m *contender) keep(ctx context.Context) {
	for ctx.Err() == nil {
		running, err := m.start()
		if err != nil {
			m.out.printf("manager %s can't be started: %v", m.name, err)
			return
		}
		m.mu.Lock()
		m.process, m.paused, m.asked = running, false, false
		m.mu.Unlock()
		m.proxy.lift()
		select {
		case <-ctx.Done():
			running.Kill()
		case <-running.Done():
			m.ended(running)
		}
		select {
		case <-ctx.Done():
		case <-time.After(restartAfter):
		}
	}
}

// ended looks why the manager ended by itself.
func (m *contender) ended(p *process.Process) {
	err := p.Crashed()
	if err == nil {
		return // we killed it
	}
	tail := process.LogTail(p.LogPath())
	last := tail[strings.LastIndex(tail, "\n")+1:]
	m.mu.Lock()
	asked := m.asked
	m.mu.Unlock()
	if !asked {
		m.out.printf("manager %s ended by itself: %s", m.name, last)
	}
	if strings.Contains(tail, "panic: ") || strings.Contains(tail, "fatal error: ") {
		m.mu.Lock()
		m.panics = append(m.panics, tail)
		m.mu.Unlock()
	}
}

// kill ends the manager with no chance to tidy up.
func (m *contender) kill() {
	m.mu.Lock()
	running := m.process
	m.mu.Unlock()
	if running != nil {
		running.Kill()
	}
}

// terminate asks the manager to end, which gives its lease back.
func (m *contender) terminate() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = true
	return m.process.Terminate()
}

// pause stops the manager from doing anything until resume.
func (m *contender) pause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = true
	return m.process.Pause()
}

func (m *contender) resume() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.paused {
		return nil // it was killed meanwhile, and another runs
	}
	m.paused = false
	return m.process.Resume()
}

// leader returns the manager that holds the lease, or nil.
func (m *managers) leader() *contender {
	var leads *contender
	var latest time.Time
	for _, one := range m.all {
		if renewed := one.proxy.leaseRenewed(); renewed.After(latest) {
			leads, latest = one, renewed
		}
	}
	if time.Since(latest) > leaseAlive {
		return nil
	}
	return leads
}

// leaderOrAny returns one that may be about to lead where none does.
func (m *managers) leaderOrAny() *contender {
	if leads := m.leader(); leads != nil {
		return leads
	}
	return m.all[0]
}

// other returns one that does not lead.
func (m *managers) other() *contender {
	leads := m.leader()
	for _, one := range m.all {
		if one != leads {
			return one
		}
	}
	return nil
}

func (m *managers) named(name string) *contender {
	for _, one := range m.all {
		if one.name == name {
			return one
		}
	}
	return nil
}

// panics returns what managers that panicked wrote.
func (m *managers) panics() []string {
	var all []string
	for _, one := range m.all {
		one.mu.Lock()
		all = append(all, one.panics...)
		one.mu.Unlock()
	}
	return all
}

// Stop ends both.
func (m *managers) Stop() {
	m.stop()
	m.done.Wait()
	for _, one := range m.all {
		one.proxy.Stop()
	}
}
