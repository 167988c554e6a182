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
	"sync"
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
	// agents run on hosts without a server, and servers are upgraded before them.
	agents = 1
	// serfAlive is the status of an agent that is.
	serfAlive = 1
	// A server has within appliedWithin what was acknowledged before.
	appliedWithin, appliedEvery = 5 * time.Second, 20 * time.Millisecond
)

var _ registries.Forwarder = (*Member)(nil)

// Cluster is a Consul of several servers, and of agents behind them. Clients talk to either.
type Cluster struct {
	*registries.Group[*Member]
}

// Member is one server of it, or an agent.
type Member struct {
	registries.Host

	cluster *Cluster
	api     *registries.Client
}

// StartCluster runs servers and agents of the oldest version that is pinned.
func StartCluster(ctx context.Context) (registries.Cluster, error) {
	// Where there can be no cluster nothing is built for one.
	versions := sync.OnceValues(func() ([]cache.Built, error) { return registries.BuildAll(ctx, os.Stderr, registries.Consul) })
	c := &Cluster{}
	member := func(host registries.Host) *Member {
		m := &Member{Host: host, cluster: c}
		m.api = registries.NewClient(m.Address())
		return m
	}
	var err error
	c.Group, err = registries.StartGroup(ctx, registries.Electing+agents, member, func(ctx context.Context, m *Member) (err error) {
		if m.Versions, err = versions(); err != nil {
			return err
		}
		m.Server, err = registries.Run(ctx, registries.Spec{Name: m.name(), Version: m.Built().Version, Command: m.command, Ready: m.ready})
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (m *Member) isServer() bool { return m.Index < registries.Electing }

func (m *Member) name() string { return fmt.Sprintf("consul-%d", m.Index) }

func (m *Member) command(dir string) (process.Command, error) {
	var peers []string
	for i := range registries.Electing {
		peers = append(peers, m.LAN.Address(i))
	}
	config := object{
		"server": m.isServer(), "retry_join": peers, "retry_interval": "1s", "datacenter": Datacenter, "node_name": m.name(),
		"data_dir": filepath.Join(dir, "consul"), "bind_addr": m.IP(), "client_addr": m.IP(),
		"ports": object{"dns": -1, "serf_wan": -1, "grpc": -1, "grpc_tls": -1},
		// On a busy machine, late heartbeats must not cause an election.
		"performance": object{"raft_multiplier": 3},
		// A server whose disk is new votes soon. One that is cut off keeps its vote, however slow the machine is: if it were dropped and
		// another's disk lost then, as in aDiskIsLostThatOneServerLacks, the last one would need the vote of the lost one forever.
		"autopilot":            object{"server_stabilization_time": "500ms", "cleanup_dead_servers": false},
		"disable_update_check": true, "log_level": "warn",
		"limits": object{"http_max_conns_per_client": 5000},
	}
	if m.isServer() {
		config["bootstrap_expect"] = registries.Electing
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return process.Command{}, fmt.Errorf("encoding the configuration: %w", err)
	}
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return process.Command{}, fmt.Errorf("writing the configuration: %w", err)
	}
	return m.On(process.Command{Path: m.Built().Paths[registries.Consul], Args: []string{"agent", "-config-file=" + file}}), nil
}

// ready waits until the server votes, in an election that was won: one whose disk is new does not at first. An agent must reach the leader.
func (m *Member) ready(ctx context.Context) error {
	if !m.isServer() {
		_, err := m.api.Do(ctx, http.MethodGet, "/v1/catalog/nodes", nil)
		return err
	}
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
			return m.caughtUp(ctx)
		}
	}
	return errors.New("the server does not vote yet")
}

// caughtUp returns nil once the server itself has a change that was made just now, and so all that was acknowledged before.
func (m *Member) caughtUp(ctx context.Context) error {
	change := time.Now().Format(time.RFC3339Nano)
	path := "/v1/kv/ready/" + m.name()
	if _, err := m.api.Do(ctx, http.MethodPut, path, []byte(change)); err != nil {
		return fmt.Errorf("changing something through %s: %w", m.name(), err)
	}
	return wait.Until(ctx, appliedWithin, appliedEvery, func(ctx context.Context) error {
		has, err := m.api.Do(ctx, http.MethodGet, path+"?raw&stale", nil)
		if err == nil && string(has) != change {
			err = fmt.Errorf("%s has what was so at %s", m.name(), has)
		}
		return err
	})
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

// Wipe starts the new server once the others have noticed that the old one is lost, and an operator has removed it: the new one has its
// name and address, and another ID. If it voted in the old one's place, what only the old one and one other had could be lost.
func (m *Member) Wipe(ctx context.Context) error {
	return m.cluster.WipeAfter(ctx, &m.Host, func(ctx context.Context, other *Member) error { return other.forget(ctx, m) })
}

// forget removes a server from the elections once this one has noticed that it is lost.
func (m *Member) forget(ctx context.Context, lost *Member) error {
	var members []struct {
		Name   string
		Status int
	}
	if err := m.get(ctx, "/v1/agent/members", &members); err != nil {
		return err
	}
	for _, one := range members {
		if one.Name == lost.name() && one.Status == serfAlive {
			return fmt.Errorf("%s has not noticed that %s is lost", m.name(), lost.name())
		}
	}
	_, err := m.api.Do(ctx, http.MethodDelete, "/v1/operator/raft/peer?address="+lost.peer(), nil)
	if err != nil && !strings.Contains(err.Error(), "was not found in the Raft configuration") {
		return fmt.Errorf("removing %s: %w", lost.name(), err)
	}
	return nil
}

// Keeps is false for an agent.
func (m *Member) Keeps() bool { return m.isServer() }

// Read is what the server itself has, as ?stale and DNS give it. An agent has nothing itself.
func (m *Member) Read(ctx context.Context, service string) ([]string, error) {
	if !m.Keeps() {
		return m.ReadLeader(ctx, service)
	}
	return m.given(ctx, service, "?stale")
}

// ReadLeader is the default consistency of the API.
func (m *Member) ReadLeader(ctx context.Context, service string) ([]string, error) {
	return m.given(ctx, service, "")
}

func (m *Member) given(ctx context.Context, service, query string) ([]string, error) {
	return read.Given(ctx, func(ctx context.Context) ([]registry.Entry, error) {
		var nodes []read.ConsulNode
		err := m.get(ctx, "/v1/health/service/"+service+query, &nodes)
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
