package eureka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
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

	mu sync.Mutex
	// unheard are the entries of which the peers have not had the same since all of them serve again; nil before they do.
	unheard map[string]bool
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Group.Whole(ctx); err != nil {
		c.unheard = nil
		return err
	}
	one, err := c.All[0].entries(ctx)
	other, otherErr := c.All[1].entries(ctx)
	if err := errors.Join(err, otherErr); err != nil {
		return err
	}
	c.unheard, err = disagree(one, other, c.unheard)
	return err
}

// entry is what a peer has of one, and whether that is older than what the other one may lack.
type entry struct {
	status string
	old    bool
}

// disagree returns an error while the peers differ, but for what one of them has changed lately. What differed when they began to serve
// again, of which unheard is left, counts whatever its age: a peer that has started can be sent what the other one had before an entry was
// taken out (PeerEurekaNode.heartbeat), and has changed it lately then.
func disagree(one, other map[string]entry, unheard map[string]bool) (left map[string]bool, err error) {
	left = map[string]bool{}
	for _, peer := range []map[string]entry{one, other} {
		for id := range peer {
			a, b := at(one, id), at(other, id)
			if a.status == b.status || unheard != nil && !unheard[id] && !(a.old && b.old) {
				continue
			}
			left[id] = true
			err = fmt.Errorf("a peer has %s with status %q, and the other one with %q", id, a.status, b.status)
		}
	}
	if err == nil {
		return nil, nil
	}
	return left, err
}

// at is what a peer has of an entry. If that is nothing, it may have had nothing for long.
func at(peer map[string]entry, id string) entry {
	if e, found := peer[id]; found {
		return e
	}
	return entry{old: true}
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
