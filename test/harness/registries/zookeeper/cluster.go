package zookeeper

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const clientPort, peerPort, electionPort = 2181, 2888, 3888

// Cluster is an ensemble, each server on a host of its own.
type Cluster struct {
	*registries.Group[*Member]
}

// Member is one server of it.
type Member struct {
	registries.Host

	cluster  *Cluster
	settings *Server // not run itself
	conn     *zk.Conn
}

// StartCluster runs servers.
func StartCluster(ctx context.Context) (registries.Cluster, error) {
	jars, err := java.Get(ctx, os.Stderr, serverJars)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	member := func(host registries.Host) *Member {
		host.Versions = []cache.Built{{Version: jars.Version("zookeeper")}}
		m := &Member{Host: host, cluster: c}
		m.settings = &Server{id: host.Index + 1, Endpoint: m.Address(), syncs: true}
		for i := range registries.Electing {
			line := fmt.Sprintf("server.%d=%s:%d:%d", i+1, host.LAN.Address(i), peerPort, electionPort)
			m.settings.ensemble = append(m.settings.ensemble, line)
		}
		return m
	}
	c.Group, err = registries.StartGroup(ctx, registries.Electing, member, func(ctx context.Context, m *Member) error {
		return m.start(ctx, jars)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (m *Member) start(ctx context.Context, jars *java.Jars) (err error) {
	if m.conn, err = read.ConnectZooKeeper(m.Address()); err != nil {
		return err
	}
	m.Server, err = registries.Run(ctx, registries.Spec{
		Name: fmt.Sprintf("zookeeper-%d", m.Index), Version: m.Built().Version, Libc: true, Ready: m.ready,
		Command: func(dir string) (process.Command, error) {
			command, err := m.settings.command(jars, dir)
			return m.On(command), err
		},
	})
	return err
}

// Address is host:port.
func (m *Member) Address() string { return fmt.Sprintf("%s:%d", m.IP(), clientPort) }

// Wipe starts the new server once the others have made a change without it, as a careful operator does. The new one votes in the old
// one's place: what only the old one and one other server had would be lost if the third led.
func (m *Member) Wipe(ctx context.Context) error {
	return m.cluster.WipeAfter(ctx, &m.Host, func(ctx context.Context, other *Member) error { return other.changes(ctx) })
}

// changes returns nil once an empty change has been made through this server: by then, most servers have what was acknowledged before.
func (m *Member) changes(ctx context.Context) error {
	const anyVersion = -1
	_, err := read.Within(ctx, func(context.Context) ([]zk.MultiResponse, error) {
		return m.conn.Multi(&zk.CheckVersionRequest{Path: "/", Version: anyVersion})
	})
	return err
}

// ready returns nil once the server has what was acknowledged before. One whose cut is over takes itself for a follower, and may hear
// nothing yet: TCP waits for the longer before it sends again, the longer it has got no answer.
func (m *Member) ready(ctx context.Context) error {
	if err := m.settings.ready(ctx); err != nil {
		return err
	}
	return m.changes(ctx)
}

// Read is what the server itself has.
func (m *Member) Read(ctx context.Context, service string) ([]string, error) {
	return read.Given(ctx, read.Curator(m.conn, "/services/"+service, service))
}

// Stop ends the server and its reader.
func (m *Member) Stop() {
	if m.conn != nil {
		m.conn.Close()
	}
	m.Host.Stop()
}

// Leader is the one that takes itself for it.
func (c *Cluster) Leader(ctx context.Context) int {
	return slices.IndexFunc(c.All, func(m *Member) bool {
		mode, err := m.settings.mode(ctx)
		return err == nil && mode == "leader"
	})
}
