package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	apiPort, rpcPort = 8500, 8300
	// A change of the members is tried for changeWithin.
	changeWithin, changeEvery, callTimeout = time.Minute, time.Second, 5 * time.Second
)

// Cluster is a Consul of several servers.
type Cluster struct {
	*registries.Group[*Member]
}

// Member is one server of it.
type Member struct {
	registries.Host

	cluster *Cluster
	size    int
	api     *registries.Client
}

// StartCluster runs n servers of the oldest version that is pinned.
func StartCluster(ctx context.Context, n int) (registries.Cluster, error) {
	built, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	member := func(host registries.Host) *Member {
		host.Versions = []cache.Built{built}
		m := &Member{Host: host, cluster: c, size: n}
		m.api = registries.NewClient(m.Address())
		return m
	}
	c.Group, err = registries.StartGroup(ctx, n, member, func(ctx context.Context, m *Member) (err error) {
		m.Server, err = registries.Run(ctx, registries.Spec{Name: m.name(), Version: m.Built().Version, Command: m.command, Ready: m.ready})
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (m *Member) name() string { return fmt.Sprintf("consul-%d", m.Index) }

func (m *Member) command(dir string) (process.Command, error) {
	var peers []string
	for i := range m.size {
		peers = append(peers, m.LAN.Address(i))
	}
	config, err := json.Marshal(object{
		"server": true, "bootstrap_expect": m.size, "retry_join": peers, "retry_interval": "1s", "datacenter": Datacenter, "node_name": m.name(),
		"data_dir": filepath.Join(dir, "consul"), "bind_addr": m.IP(), "client_addr": m.IP(),
		"ports": object{"dns": -1, "serf_wan": -1, "grpc": -1, "grpc_tls": -1},
		// A busy machine is no reason to elect another leader.
		"performance": object{"raft_multiplier": 3},
		// A server whose disk is new votes soon.
		"autopilot":            object{"server_stabilization_time": "500ms"},
		"disable_update_check": true, "log_level": "warn",
		"limits": object{"http_max_conns_per_client": 5000},
	})
	if err != nil {
		return process.Command{}, fmt.Errorf("encoding the configuration: %w", err)
	}
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return process.Command{}, fmt.Errorf("writing the configuration: %w", err)
	}
	return m.On(process.Command{Path: m.Built().Paths[Binary], Args: []string{"agent", "-config-file=" + file}}), nil
}

// ready waits until the server votes, in an election that was won. Its address is also that of the one before, whose disk is gone.
func (m *Member) ready(ctx context.Context) error {
	var self struct{ Config struct{ NodeID string } }
	if err := m.get(ctx, "/v1/agent/self", &self); err != nil {
		return err
	}
	var raft struct {
		Servers []struct {
			ID    string
			Voter bool
		}
	}
	if err := m.get(ctx, "/v1/operator/raft/configuration", &raft); err != nil {
		return err
	}
	for _, s := range raft.Servers {
		if s.ID == self.Config.NodeID && s.Voter {
			return nil
		}
	}
	return errors.New("the server does not vote yet")
}

func (m *Member) get(ctx context.Context, path string, answer any) error {
	raw, err := m.api.Do(ctx, http.MethodGet, path, nil)
	if err == nil {
		err = json.Unmarshal(raw, answer)
	}
	if err != nil {
		return fmt.Errorf("asking %s for %s: %w", m.name(), path, err)
	}
	return nil
}

// peer is how the servers name it.
func (m *Member) peer() string { return fmt.Sprintf("%s:%d", m.IP(), rpcPort) }

// Address is a URL.
func (m *Member) Address() string { return fmt.Sprintf("http://%s:%d", m.IP(), apiPort) }

// Wipe has the others forget the one whose disk is gone: the new one has another ID, and the same name.
func (m *Member) Wipe(ctx context.Context) error {
	return m.Server.Wipe(ctx, func() error {
		return wait.Until(ctx, changeWithin, changeEvery, func(ctx context.Context) (err error) {
			for _, other := range m.cluster.All {
				if other == m {
					continue
				}
				if err = other.forget(ctx, m); err == nil {
					return nil
				}
			}
			return err
		})
	})
}

func (m *Member) forget(ctx context.Context, lost *Member) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, step := range []struct{ method, path, done string }{
		{http.MethodPut, "/v1/agent/force-leave/" + lost.name() + "?prune", "No node found"},
		{http.MethodDelete, "/v1/operator/raft/peer?address=" + lost.peer(), "was not found in the Raft configuration"},
	} {
		if _, err := m.api.Do(ctx, step.method, step.path, nil); err != nil && !strings.Contains(err.Error(), step.done) {
			return fmt.Errorf("having %s forgotten: %w", lost.name(), err)
		}
	}
	return nil
}

// Read is what the server itself has, as ?stale and DNS give it.
func (m *Member) Read(ctx context.Context, service string) ([]string, error) {
	return read.Given(ctx, func(ctx context.Context) ([]registry.Entry, error) {
		var nodes []read.ConsulNode
		err := m.get(ctx, "/v1/health/service/"+service+"?stale", &nodes)
		return read.ConsulEntries(nodes), err
	})
}

// Leader is the one that takes itself for it.
func (c *Cluster) Leader(ctx context.Context) int {
	return slices.IndexFunc(c.All, func(m *Member) bool {
		var leader string
		return m.get(ctx, "/v1/status/leader", &leader) == nil && leader == m.peer()
	})
}
