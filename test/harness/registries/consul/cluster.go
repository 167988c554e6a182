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

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	apiPort, rpcPort = 8500, 8300
)

// Cluster is a Consul of several servers.
type Cluster struct {
	*registries.Group[*Member]
}

// Member is one server of it.
type Member struct {
	registries.Host

	api *registries.Client
}

// StartCluster runs servers of the oldest version that is pinned.
func StartCluster(ctx context.Context) (registries.Cluster, error) {
	versions, err := registries.BuildAll(ctx, os.Stderr, Binary, source)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	member := func(host registries.Host) *Member {
		host.Versions = versions
		m := &Member{Host: host}
		m.api = registries.NewClient(m.Address())
		return m
	}
	c.Group, err = registries.StartGroup(ctx, registries.Electing, member, func(ctx context.Context, m *Member) (err error) {
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
	for i := range registries.Electing {
		peers = append(peers, m.LAN.Address(i))
	}
	config, err := json.Marshal(object{
		"server": true, "bootstrap_expect": registries.Electing, "retry_join": peers, "retry_interval": "1s",
		"datacenter": Datacenter, "node_name": m.name(), "node_id": fmt.Sprintf("00000000-0000-4000-8000-%012d", m.Index),
		"data_dir": filepath.Join(dir, "consul"), "bind_addr": m.IP(), "client_addr": m.IP(),
		"ports": object{"dns": -1, "serf_wan": -1, "grpc": -1, "grpc_tls": -1},
		// On a busy machine, late heartbeats must not cause an election.
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

// ready waits until the server votes, in an election that was won: autopilot drops one that was away.
func (m *Member) ready(ctx context.Context) error {
	var raft struct {
		Servers []struct {
			Address string
			Voter   bool
		}
	}
	if err := m.get(ctx, "/v1/operator/raft/configuration", &raft); err != nil {
		return err
	}
	for _, s := range raft.Servers {
		if s.Address == m.peer() && s.Voter {
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
func (m *Member) Address() string { return registries.URL(m.IP(), apiPort) }

// Wipe needs nothing of the others: a server has its ID from its machine, and takes what the leader has.
func (m *Member) Wipe(ctx context.Context) error {
	return m.Server.Wipe(ctx, func() error { return nil })
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
