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

// FreePorts returns n different ports, each as [FreePortWith] returns one.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = FreePortWith(ctx); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// FreePortWith returns a port that nothing listens on, for a server that listens at the offsets from it too. No other call gives
// one of them, in whatever process, until this process ends: a server may take seconds before it listens, and is restarted.
func FreePortWith(ctx context.Context, offsets ...int) (int, error) {
	room := LastPort - slices.Max(append([]int{0}, offsets...))
	for range portAttempts {
		port := firstPort + rand.IntN(room-firstPort+1)
		free := take(ctx, port)
		for _, offset := range offsets {
			free = free && take(ctx, port+offset)
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding a free port between %d and %d with %v from it free as well: none found", firstPort, room, offsets)
}

// take reports whether nothing listens on the port, and no other was given it.
func take(ctx context.Context, port int) bool {
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
	return l.Close() == nil
}
