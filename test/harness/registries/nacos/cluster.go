package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	clusterPort = 8848
	// raftGroup holds the persistent instances.
	raftGroup = "naming_persistent_service_v2"
)

// Cluster is a Nacos of several servers, whose persistent instances are in its Raft.
type Cluster struct {
	*registries.Group[*Member]
}

// Member is one server of it.
type Member struct {
	registries.Host

	cluster  *Cluster
	settings *Server // not run itself
}

// restarts: a server that reads its configuration before a leader is elected, or while the leader changes, ends by itself.
const restarts = 2

// StartCluster runs servers of version 3. NACOS=2.5 in the environment chooses that version.
func StartCluster(ctx context.Context) (registries.Cluster, error) {
	version := V3
	switch chosen := os.Getenv("NACOS"); chosen {
	case "":
	case "2.5":
		version = V2
	default:
		return nil, fmt.Errorf("NACOS=%s: set 2.5, or nothing for version 3", chosen)
	}
	jars, err := java.Get(ctx, os.Stderr, version.folder())
	if err != nil {
		return nil, err
	}
	unlock, err := lockStart(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := &Cluster{}
	member := func(host registries.Host) *Member {
		host.Versions = []cache.Built{{Version: jars.Version("nacos-naming")}}
		m := &Member{Host: host, cluster: c}
		m.settings = &Server{opts: Options{Version: version}, Endpoint: m.Address(), Port: clusterPort}
		for i := range registries.Electing {
			m.settings.peers = append(m.settings.peers, fmt.Sprintf("%s:%d", host.LAN.Address(i), clusterPort))
		}
		return m
	}
	c.Group, err = registries.StartGroup(ctx, registries.Electing, member, func(ctx context.Context, m *Member) (err error) {
		m.Server, err = registries.Run(ctx, registries.Spec{
			Name: fmt.Sprintf("nacos-%d", m.Index), Version: m.Built().Version, Libc: true, Ready: m.ready, Restarts: restarts,
			Command: func(dir string) (process.Command, error) {
				command, err := m.settings.command(jars, dir)
				return m.On(command), err
			},
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Address is a URL.
func (m *Member) Address() string { return registries.URL(m.IP(), clusterPort) }

// raft is the server's address for its peers.
func (m *Member) raft() string { return fmt.Sprintf("%s:%d", m.IP(), clusterPort+raftOffset) }

// ready waits until the server serves, and votes in elections that were won.
func (m *Member) ready(ctx context.Context) error {
	if err := m.settings.ready(ctx); err != nil {
		return err
	}
	groups, err := m.groups(ctx)
	if err == nil && len(groups) == 0 {
		err = errors.New("the server takes part in no election yet")
	}
	for name, g := range groups {
		if g.Leader == "" || !slices.Contains(g.Members, m.raft()) {
			err = errors.Join(err, fmt.Errorf("in %s the leader is %q and the members are %v", name, g.Leader, g.Members))
		}
	}
	return err
}

// Wipe has the others remove the server whose disk is gone from all elections, by Nacos' operations API. The new one joins them by
// itself. If it voted in the old one's place, what only the old one and one other had could be lost.
func (m *Member) Wipe(ctx context.Context) error {
	return m.cluster.WipeAfter(ctx, &m.Host, func(ctx context.Context, other *Member) error { return other.forget(ctx, m) })
}

// forget removes a server from all elections, and fails until that has been done: the API returns the same if it has not.
func (m *Member) forget(ctx context.Context, lost *Member) error {
	command := fmt.Appendf(nil, `{"command":"removePeer","value":%q}`, lost.raft())
	raft := "/nacos" + m.settings.opts.Version.core() + "/ops/raft"
	if _, err := registries.NewClient(m.Address()).Do(ctx, http.MethodPost, raft, command); err != nil {
		return fmt.Errorf("removing %s: %w", lost.raft(), err)
	}
	groups, err := m.groups(ctx)
	for name, g := range groups {
		if slices.Contains(g.Members, lost.raft()) {
			err = errors.Join(err, fmt.Errorf("%s is still in %s of %s", lost.raft(), name, m.raft()))
		}
	}
	return err
}

// Read is what the server itself has.
func (m *Member) Read(ctx context.Context, service string) ([]string, error) {
	return read.Given(ctx, read.NacosList(m.Address()+"/nacos"+m.settings.listPath(), service))
}

// Leader is the one that takes itself for the leader of the persistent instances.
func (c *Cluster) Leader(ctx context.Context) int {
	return slices.IndexFunc(c.All, func(m *Member) bool {
		groups, err := m.groups(ctx)
		return err == nil && groups[raftGroup].Leader == m.raft()
	})
}

// group is those that elect one leader, as a server knows it.
type group struct {
	Leader  string   `json:"leader"`
	Members []string `json:"raftGroupMember"`
}

func (m *Member) groups(ctx context.Context) (map[string]group, error) {
	path := "/cluster/node/self"
	if m.settings.opts.Version == V2 {
		path = "/cluster/self"
	}
	body, err := m.settings.Do(ctx, http.MethodGet, m.settings.opts.Version.core()+path, nil, "")
	if err != nil {
		return nil, err
	}
	var self struct {
		Data struct {
			ExtendInfo struct {
				RaftMetaData struct {
					MetaDataMap map[string]group `json:"metaDataMap"`
				} `json:"raftMetaData"`
			} `json:"extendInfo"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &self); err != nil {
		return nil, fmt.Errorf("reading what %s is: %w", m.Address(), err)
	}
	return self.Data.ExtendInfo.RaftMetaData.MetaDataMap, nil
}
