package eureka

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const clusterPort = 8761

// Cluster is peers that replicate to one another. None leads.
type Cluster struct {
	*registries.Group[*Member]
}

// Member is one of them.
type Member struct {
	registries.Host

	settings *Server // not run itself
}

// StartCluster runs two peers of the oldest version that is pinned.
func StartCluster(ctx context.Context) (registries.Cluster, error) {
	all, err := getAll(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	member := func(host registries.Host) *Member {
		for _, jars := range all {
			host.Versions = append(host.Versions, cache.Built{Version: jars.Version(artifact)})
		}
		m := &Member{Host: host}
		m.settings = &Server{
			Endpoint: m.Address(), Staleness: cacheExpiry, host: m.IP(), port: clusterPort, peer: address(host.LAN.Address(1 - host.Index)),
			api: registries.NewClient(m.Address()), syncs: true,
		}
		return m
	}
	c.Group, err = registries.StartGroup(ctx, 2, member, func(ctx context.Context, m *Member) (err error) { //nolint:mnd // peers
		m.Server, err = registries.Run(ctx, registries.Spec{
			Name: fmt.Sprintf("eureka-%d", m.Index), Version: m.Built().Version, Ready: m.settings.ready,
			Command: func(dir string) (process.Command, error) {
				runs := slices.IndexFunc(all, func(j *java.Jars) bool { return j.Version(artifact) == m.Built().Version })
				command, err := m.settings.command(all[runs], dir)
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

func address(ip string) string { return registries.URL(ip, clusterPort) + "/eureka" }

// Address is a URL.
func (m *Member) Address() string { return address(m.IP()) }

// Wipe is a restart: nothing is on a disk.
func (m *Member) Wipe(ctx context.Context) error {
	return m.Server.Wipe(ctx, func() error { return nil })
}

// Read is what the server answers from its caches.
func (m *Member) Read(ctx context.Context, service string) ([]string, error) {
	return read.Given(ctx, read.Eureka(m.Address(), service))
}

// Leader is none.
func (c *Cluster) Leader(context.Context) int { return registries.NoLeader }
