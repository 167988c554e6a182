package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/process"
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
	name    string
	manager *manager.Manager
	proxy   *apiproxy.Proxy
	// renewed is when it last wrote the lease.
	renewed func() time.Time
	start   func() error
	// configure writes its configuration, with the registry of pods that choose none.
	configure func(usual string) error
	out       *output
	// profiles is where it serves them in a soak.
	profiles string
	// fail makes the run fail.
	fail func(why string)

	mu      sync.Mutex
	process *process.Process
	seized  bool // by somebody who does something to it
	asked   bool // to end
}

// startManagers starts those of a game.
func startManagers(ctx context.Context, g *game) (*managers, error) {
	dir, err := os.MkdirTemp(g.dir, filepath.Base(g.binary)+"-") // several games may play one binary, each with logs of its own
	if err != nil {
		return nil, fmt.Errorf("creating a folder for the managers' logs: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	m := &managers{stop: stop}
	for _, name := range []string{"m1", "m2"} {
		one, err := newContender(ctx, name, dir, g)
		if err != nil {
			m.Stop()
			return nil, err
		}
		m.all = append(m.all, one)
		m.done.Go(func() { one.keep(ctx) })
	}
	return m, nil
}

func newContender(ctx context.Context, name, dir string, g *game) (*contender, error) {
	proxy, err := apiproxy.Start(ctx, g.account, g.journal.PatchesOf(name))
	if err != nil {
		return nil, err
	}
	flags := []string{
		"--leader-elect=true", "--leader-election-namespace=" + account.Namespace,
		"--health-probe-bind-address=0",
	}
	ports, err := process.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	profiles := fmt.Sprintf("127.0.0.1:%d", ports[0])
	if g.held != nil {
		flags = append(flags, "--pprof-bind-address="+profiles)
	} else {
		flags = append(flags, "--metrics-bind-address=0")
	}
	config := func(usual string) string {
		return configuration(g.registry.section(name, usual), g.plan.maxRemovals(), g.journal.Drain, g.registry.written(usual))
	}
	m, err := manager.New(manager.Options{
		Name: name, Dir: filepath.Join(dir, name), Path: g.binary, Flags: flags, Launcher: g.launcher,
		Config: config(defaultRegistry), WriteKubeconfig: proxy.WriteKubeconfig,
	})
	if err != nil {
		proxy.Stop()
		return nil, err
	}
	return &contender{
		manager: m, name: name, proxy: proxy, renewed: proxy.LeaseRenewed, out: g.out, fail: g.report.note, start: m.Start,
		profiles: profiles, configure: func(usual string) error { return m.Configure(config(usual)) },
	}, nil
}

func configuration(registries, maxRemovals string, drain time.Duration, written checker.Written) string {
	text := fmt.Sprintf("cluster: %s\nregistries:\n%shooks: {owned: [example.com/*, example.io/*], newlyCreated: [%s, %s]}\n"+
		"drain: %s\nresync: {interval: %s", clusterName, registries, markLabel, markAnnotation, drain, resyncInterval)
	if maxRemovals != "" {
		text += ", maxRemovals: " + maxRemovals
	}
	text += "}\n"
	if written.Metadata != nil {
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(written.Metadata)) {
			pairs = append(pairs, fmt.Sprintf("%s: %q", key, written.Metadata[key]))
		}
		text += fmt.Sprintf("service: {networks: [%s], networkAddresses: [172.0.0.0/8], metadata: {%s}}\n", storage, strings.Join(pairs, ", "))
	}
	return text
}

// keep starts the manager whenever it does not run, until the context ends.
func (m *contender) keep(ctx context.Context) {
	for ctx.Err() == nil {
		if err := m.start(); err != nil {
			m.fail(fmt.Sprintf("manager %s can't be started: %v", m.name, err))
			return
		}
		running := m.manager.Process()
		m.mu.Lock()
		m.process, m.asked = running, false
		m.mu.Unlock()
		m.proxy.Fence(false)
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

// ended says what the manager wrote last where it ended by itself.
func (m *contender) ended(p *process.Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.Crashed() == nil || m.asked {
		return // we killed it, or asked it to end
	}
	tail := process.LogTail(p.LogPath())
	m.out.printf("manager %s ended by itself: %s", m.name, tail[strings.LastIndex(tail, "\n")+1:])
}

// leader returns the manager that holds the lease, or nil.
func (m *managers) leader() *contender {
	var leads *contender
	var latest time.Time
	for _, one := range m.all {
		if renewed := one.renewed(); renewed.After(latest) {
			leads, latest = one, renewed
		}
	}
	if time.Since(latest) > leaseAlive {
		return nil
	}
	return leads
}

func (m *managers) named(name string) *contender {
	for _, one := range m.all {
		if one.name == name {
			return one
		}
	}
	return nil
}

func (m *managers) names() []string {
	var all []string
	for _, one := range m.all {
		all = append(all, one.name)
	}
	return all
}

func (m *managers) Stop() {
	m.stop()
	m.done.Wait()
	for _, one := range m.all {
		one.proxy.Stop()
	}
}
