package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	clientPort, peerPort = 2379, 2380
	// A change of the members is tried for changeWithin.
	changeWithin, changeEvery, callTimeout = 5 * time.Minute, time.Second, 5 * time.Second
	// Target is below which readers of a cluster look for services.
	Target = "services"
)

// Cluster is an etcd of several members.
type Cluster struct {
	*registries.Group[*Member]
}

// Member is one server of it.
type Member struct {
	registries.Host

	peers  string // as --initial-cluster
	joins  bool   // a cluster that there is
	api    *registries.Client
	others func() []*Member
	client *clientv3.Client
}

// StartCluster runs members of the oldest version that is pinned.
func StartCluster(ctx context.Context) (registries.Cluster, error) {
	// Where there can be no cluster nothing is built for one.
	versions := sync.OnceValues(func() ([]cache.Built, error) { return registries.BuildAll(ctx, os.Stderr, registries.Etcd) })
	c := &Cluster{}
	member := func(host registries.Host) *Member {
		m := &Member{Host: host}
		m.api = registries.NewClient(m.Address())
		m.others = func() []*Member {
			return slices.DeleteFunc(slices.Clone(c.All), func(o *Member) bool { return o == m })
		}
		var peers []string
		for i := range registries.Electing {
			peers = append(peers, fmt.Sprintf("etcd-%d=%s", i, peerURL(host.LAN.Address(i))))
		}
		m.peers = strings.Join(peers, ",")
		return m
	}
	var err error
	c.Group, err = registries.StartGroup(ctx, registries.Electing, member, func(ctx context.Context, m *Member) (err error) {
		if m.Versions, err = versions(); err != nil {
			return err
		}
		return m.start(ctx)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func peerURL(ip string) string { return registries.URL(ip, peerPort) }

func (m *Member) name() string { return fmt.Sprintf("etcd-%d", m.Index) }

func (m *Member) start(ctx context.Context) (err error) {
	// The client comes first: it waits for its server by itself.
	m.client, err = clientv3.New(clientv3.Config{Endpoints: []string{m.Address()}, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("making a client of etcd: %w", err)
	}
	m.Server, err = registries.Run(ctx, registries.Spec{Name: m.name(), Version: m.Built().Version, Command: m.command, Ready: m.ready})
	return err
}

func (m *Member) command(dir string) (process.Command, error) {
	state := "new"
	if m.joins {
		state = "existing"
	}
	listen := m.Address()
	return m.On(process.Command{Path: m.Built().Paths[registries.Etcd], Args: []string{
		"--name=" + m.name(), "--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + listen, "--advertise-client-urls=" + listen,
		"--listen-peer-urls=" + peerURL(m.IP()), "--initial-advertise-peer-urls=" + peerURL(m.IP()),
		"--initial-cluster=" + m.peers, "--initial-cluster-state=" + state, "--strict-reconfig-check=false",
		// On a busy machine, late heartbeats must not cause an election.
		"--heartbeat-interval=200", "--election-timeout=2000",
		"--log-level=warn",
	}}), nil
}

func (m *Member) ready(ctx context.Context) error {
	_, err := m.api.Do(ctx, http.MethodGet, "/health", nil)
	return err
}

// Address is a URL.
func (m *Member) Address() string {
	return registries.URL(m.IP(), clientPort)
}

// Wipe has another member forget the one whose disk is gone, and know the new one, as etcd's guide to disaster recovery has it.
func (m *Member) Wipe(ctx context.Context) error {
	m.joins = true
	return m.Server.Wipe(ctx, func() error {
		return wait.Until(ctx, changeWithin, changeEvery, func(ctx context.Context) error { // where it led, there is no leader for a moment
			var err error
			for _, other := range m.others() {
				if err = other.replace(ctx, m.name(), peerURL(m.IP())); err == nil {
					return nil
				}
			}
			return err
		})
	})
}

// replace has the member's cluster forget another one, if it has it, and know a new one of its address.
func (m *Member) replace(ctx context.Context, name, peer string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := m.api.Do(ctx, http.MethodPost, "/v3/cluster/member/list", []byte("{}"))
	if err != nil {
		return fmt.Errorf("listing the members: %w", err)
	}
	var list struct {
		Members []struct {
			ID       string   `json:"ID"`       //nolint:tagliatelle // etcd's
			PeerURLs []string `json:"peerURLs"` //nolint:tagliatelle // etcd's
		} `json:"members"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("reading the members: %w", err)
	}
	for _, one := range list.Members {
		if !slices.Contains(one.PeerURLs, peer) {
			continue
		}
		if _, err := m.api.Do(ctx, http.MethodPost, "/v3/cluster/member/remove", fmt.Appendf(nil, `{"ID":%q}`, one.ID)); err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	if _, err := m.api.Do(ctx, http.MethodPost, "/v3/cluster/member/add", fmt.Appendf(nil, `{"peerURLs":[%q]}`, peer)); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

// Read is what the server itself has: watches follow that, and so do the resolvers of gRPC.
func (m *Member) Read(ctx context.Context, service string) ([]string, error) {
	answer, err := m.client.Get(ctx, Target+"/"+service+"/", clientv3.WithPrefix(), clientv3.WithSerializable())
	if err != nil {
		return nil, fmt.Errorf("reading from %s: %w", m.name(), err)
	}
	given := make([]string, 0, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		var endpoint struct{ Addr string }
		if err := json.Unmarshal(kv.Value, &endpoint); err != nil {
			return nil, fmt.Errorf("reading %s from %s: %w", kv.Key, m.name(), err)
		}
		given = append(given, endpoint.Addr)
	}
	return given, nil
}

// Stop ends the server and its reader.
func (m *Member) Stop() {
	if m.client != nil {
		_ = m.client.Close()
	}
	m.Host.Stop()
}

// Leader asks each member whom it follows, and believes the first that leads itself.
func (c *Cluster) Leader(ctx context.Context) int {
	return slices.IndexFunc(c.All, func(m *Member) bool {
		status, err := m.client.Status(ctx, m.Address())
		return err == nil && status.Leader != 0 && status.Leader == status.Header.GetMemberId()
	})
}
