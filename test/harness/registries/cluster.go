package registries

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/lan"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// NoLeader is what a registry answers that has none: none was elected, or it elects none.
const NoLeader = -1

// Electing is how many servers a cluster has that elects a leader: it can lose one.
const Electing = 3

// ErrOneVersion is the error of an upgrade where the newest version runs already, or no other one is pinned.
var ErrOneVersion = errors.New("no newer version of the server is pinned")

// Cluster is one registry of several servers, each on a host of its own in a network that can be cut.
type Cluster interface {
	// Members are in the order of the network's hosts.
	Members() []Member
	// Network is where the servers are. What is cut off from its peers is reached from here still.
	Network() *lan.LAN
	// Leader is the index of the member that leads, or [NoLeader].
	Leader(ctx context.Context) int
	// Whole returns nil once every member serves and counts again: only then can another one be taken away.
	Whole(ctx context.Context) error
	Stop()
}

// Member is one server of a [Cluster].
type Member interface { //nolint:interfacebloat // all that happens to a server
	// Address is as the driver's endpoint takes it, where several stand with commas.
	Address() string
	// Kill and Restart keep the disk. Restart returns once the server serves, which may take the others.
	Kill()
	Restart(ctx context.Context) error
	// Freeze stops the process from doing anything, as a paused machine does, until Thaw.
	Freeze() error
	Thaw() error
	// SetClock has the time of day be ahead by so much from now on, or behind, also after a restart.
	SetClock(ahead time.Duration) error
	// SlowDisk has each sync of the disk take so much longer, until end is called, which tells how many did.
	SlowDisk(ctx context.Context, by time.Duration) (end func() (syncs int), err error)
	// Wipe is a new disk: what an operator does whose server has lost its own. It returns once the server serves.
	Wipe(ctx context.Context) error
	// Upgrade restarts the server in the newest version, with its disk.
	Upgrade(ctx context.Context) error
	// Read is what a client of this very server is given of a service: addresses with ports. It is not more recent than what
	// the server itself has.
	Read(ctx context.Context, service string) ([]string, error)
	// Ready returns nil while the server serves, as a full member.
	Ready(ctx context.Context) error
	// Logs is the end of the server's log.
	Logs() string
	Stop()
}

// Forwarder is a member that has the leader answer its clients, unless they take what the member has itself: that is [Member.Read].
type Forwarder interface {
	ReadLeader(ctx context.Context, service string) ([]string, error)
	// Keeps is false for a member that has nothing itself: all its answers are the leader's.
	Keeps() bool
}

// Host is what the members of all clusters have in common: a server on a host of the network.
type Host struct {
	*Server

	LAN   *lan.LAN
	Index int
	// Versions are what was built of the server, the newest last. The first one runs first.
	Versions []cache.Built
	version  int
}

// Built is the version that runs, or is about to.
func (h *Host) Built() cache.Built { return h.Versions[h.version] }

// On is the command on the host.
func (h *Host) On(c process.Command) process.Command { return h.LAN.On(h.Index, c) }

// IP is the host's.
func (h *Host) IP() string { return h.LAN.Address(h.Index) }

// Upgrade restarts the server in the newest version.
func (h *Host) Upgrade(ctx context.Context) error {
	if h.version == len(h.Versions)-1 {
		return ErrOneVersion
	}
	h.version = len(h.Versions) - 1
	return h.Renew(ctx)
}

// Group is what all clusters have in common.
type Group[M Member] struct {
	All []M
	LAN *lan.LAN
}

// StartGroup makes a network of n hosts and a member on each. They start at once, since none may serve without the others.
func StartGroup[M Member](
	ctx context.Context, n int, member func(Host) M, start func(ctx context.Context, m M) error,
) (*Group[M], error) {
	network, err := lan.Start(ctx, n)
	if err != nil {
		return nil, Missing(err)
	}
	g := &Group[M]{LAN: network}
	var all errgroup.Group
	for host := range n {
		m := member(Host{LAN: network, Index: host})
		g.All = append(g.All, m)
		all.Go(func() error { return start(ctx, m) })
	}
	if err := all.Wait(); err != nil {
		g.Stop()
		return nil, err
	}
	return g, nil
}

// WipeAfter gives a member a new disk, as [Member.Wipe] does, once each of the others agrees. They are asked again and again: if the
// lost one led, there is no leader for a moment.
func (g *Group[M]) WipeAfter(ctx context.Context, lost *Host, agrees func(ctx context.Context, other M) error) error {
	const within, every, callTimeout = 5 * time.Minute, time.Second, 5 * time.Second
	return lost.Wipe(ctx, func() error {
		return wait.Until(ctx, within, every, func(ctx context.Context) (err error) {
			for i, other := range g.All {
				if i == lost.Index {
					continue
				}
				asked, cancel := context.WithTimeout(ctx, callTimeout)
				err = errors.Join(err, agrees(asked, other))
				cancel()
			}
			return err
		})
	})
}

// Members are all of them.
func (g *Group[M]) Members() []Member {
	members := make([]Member, len(g.All))
	for i, m := range g.All {
		members[i] = m
	}
	return members
}

// Network is where the members are.
func (g *Group[M]) Network() *lan.LAN { return g.LAN }

// Whole asks all of them.
func (g *Group[M]) Whole(ctx context.Context) error {
	var all error
	for _, m := range g.All {
		all = errors.Join(all, m.Ready(ctx))
	}
	return all
}

// Stop ends all servers and their network.
func (g *Group[M]) Stop() {
	for _, m := range g.All {
		m.Stop()
	}
	g.LAN.Stop()
}
