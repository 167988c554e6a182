package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
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
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	var config net.ListenConfig
	for range portAttempts {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(LastPort-firstPort+1)
		// The port is tried only once it is reserved: to try one that another process was given could keep its server from
		// listening.
		if !reserve(port) {
			continue
		}
		// All addresses, since OpenKruise's webhook server takes them all.
		l, err := config.Listen(ctx, "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		held = append(held, l)
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("finding %d free ports between %d and %d: only %d found", n, firstPort, LastPort, len(ports))
}
