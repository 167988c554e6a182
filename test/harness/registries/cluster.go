package registries

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/test/harness/lan"
)

// NoLeader is what a registry answers that has none: none was elected, or it elects none.
const NoLeader = -1

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
	Stop()
}

// Member is one server of a [Cluster].
type Member interface {
	// Address is as the driver's endpoint takes it, where several stand with commas.
	Address() string
	// Kill and Restart keep the disk. Restart returns once the server serves, which may take the others.
	Kill()
	Restart(ctx context.Context) error
	// Freeze stops the process from doing anything, as a paused machine does, until Thaw.
	Freeze() error
	Thaw() error
	// Wipe is a new disk: what an operator does whose server has lost its own. It returns once the server serves.
	Wipe(ctx context.Context) error
	// Upgrade restarts the server in the newest version, with its disk.
	Upgrade(ctx context.Context) error
	// Read is what a client of this very server is given of a service: addresses with ports. It is not more recent than what
	// the server itself has.
	Read(ctx context.Context, service string) ([]string, error)
	// Logs is the end of the server's log.
	Logs() string
	Stop()
}

// Group is what all clusters have in common.
type Group[M Member] struct {
	All []M
	LAN *lan.LAN
}

// StartGroup makes a network of n hosts and a member on each. They start at once, since none may serve without the others.
func StartGroup[M Member](
	ctx context.Context, n int, member func(network *lan.LAN, host int) M, start func(ctx context.Context, m M) error,
) (*Group[M], error) {
	network, err := lan.Start(ctx, n)
	if err != nil {
		return nil, Missing(err)
	}
	g := &Group[M]{LAN: network}
	var all errgroup.Group
	for host := range n {
		m := member(network, host)
		g.All = append(g.All, m)
		all.Go(func() error { return start(ctx, m) })
	}
	if err := all.Wait(); err != nil {
		g.Stop()
		return nil, err
	}
	return g, nil
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

// Stop ends all servers and their network.
func (g *Group[M]) Stop() {
	for _, m := range g.All {
		m.Stop()
	}
	g.LAN.Stop()
}
