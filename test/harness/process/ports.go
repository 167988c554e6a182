package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
)

// LastPort is the highest that a server of a test listens on. The kernel gives those above to outgoing connections (32768 and
// up by default): one of these would now and then sit on the port of a server that is about to start, or to be restarted.
const LastPort = 32767

const (
	firstPort    = 20000
	portAttempts = 200
)

// FreePorts returns n different ports that nothing listens on. No other call gives one of them, in whatever process, until this
// process ends: a server may take seconds before it listens.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	var held listeners
	defer held.close()
	for range portAttempts {
		if len(ports) == n {
			return ports, nil
		}
		if port := firstPort + rand.IntN(LastPort-firstPort+1); held.take(ctx, port) {
			ports = append(ports, port)
		}
	}
	return nil, fmt.Errorf("finding %d free ports between %d and %d: only %d found", n, firstPort, LastPort, len(ports))
}

// FreePortWith returns a port as FreePorts does, for a server that listens at the offsets from it too. Those are given to no
// other either, also while the server is restarted.
func FreePortWith(ctx context.Context, offsets ...int) (int, error) {
	room := LastPort - slices.Max(append([]int{0}, offsets...))
	for range portAttempts {
		port := firstPort + rand.IntN(room-firstPort+1)
		var held listeners
		free := held.take(ctx, port)
		for _, offset := range offsets {
			free = free && held.take(ctx, port+offset)
		}
		held.close()
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding a free port between %d and %d with %v from it free as well: none found", firstPort, room, offsets)
}

// listeners hold ports until all that a server needs are found.
type listeners []net.Listener

// take reports whether nothing listens on the port, and no other was given it.
func (held *listeners) take(ctx context.Context, port int) bool {
	// The port is tried only once it is reserved: to try one that another process was given could keep its server from
	// listening.
	if !reserve(port) {
		return false
	}
	var config net.ListenConfig
	// All addresses, since OpenKruise's webhook server takes them all.
	l, err := config.Listen(ctx, "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	*held = append(*held, l)
	return true
}

func (held *listeners) close() {
	for _, l := range *held {
		_ = l.Close()
	}
}
