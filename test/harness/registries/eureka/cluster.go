package eureka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	clusterPort = 8761
	// What a peer has changed within lately, the other one may not have heard.
	lately = 2 * time.Second
)

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
			Name: fmt.Sprintf("eureka-%d", m.Index), Version: m.Built().Version, Libc: true, Ready: m.settings.ready,
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

// Whole asks all of them, and then whether the peers have told each other what happened while they could not: they try again by and by.
func (c *Cluster) Whole(ctx context.Context) error {
	if err := c.Group.Whole(ctx); err != nil {
		return err
	}
	one, err := c.All[0].entries(ctx)
	other, otherErr := c.All[1].entries(ctx)
	if err := errors.Join(err, otherErr); err != nil {
		return err
	}
	return errors.Join(lacks(one, other), lacks(other, one))
}

// entry is what a peer has of one, and whether that is older than what the other one may lack.
type entry struct {
	status string
	old    bool
}

// lacks returns an error if a peer has not heard of what the other one has.
func lacks(peer, other map[string]entry) error {
	for id, e := range other {
		if got, found := peer[id]; e.old && (!found || got.old && got.status != e.status) {
			return fmt.Errorf("a peer has %s with status %q, and the other one with %q", id, got.status, e.status)
		}
	}
	return nil
}

func (m *Member) entries(ctx context.Context) (map[string]entry, error) {
	raw, err := m.settings.Do(ctx, http.MethodGet, "/apps", nil)
	if err != nil {
		return nil, err
	}
	var all struct {
		Applications struct {
			Application []struct {
				Instance []struct {
					InstanceID, Status   string
					LastUpdatedTimestamp json.Number
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("reading what %s has: %w", m.Name(), err)
	}
	entries := map[string]entry{}
	for _, app := range all.Applications.Application {
		for _, i := range app.Instance {
			updated, err := i.LastUpdatedTimestamp.Int64()
			if err != nil {
				return nil, fmt.Errorf("reading when %s changed %s: %w", m.Name(), i.InstanceID, err)
			}
			entries[i.InstanceID] = entry{i.Status, time.Since(time.UnixMilli(updated)) > lately}
		}
	}
	return entries, nil
}
