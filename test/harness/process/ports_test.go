package process

import (
	"net"
	"strconv"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestFreePorts(t *testing.T) {
	t.Parallel()
	ports, err := FreePorts(t.Context(), 9)
	expect.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range ports {
		if seen[port] || port < firstPort || port > LastPort {
			t.Errorf("port %d of %v is a duplicate or out of range", port, ports)
		}
		seen[port] = true
	}
	if reserve(ports[1]) {
		t.Errorf("port %d was given once, and would be given again before its server listens", ports[1])
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])))
	if err != nil {
		t.Fatalf("port %d is not free: %v", ports[0], err)
	}
	_ = l.Close()
	_, err = FreePortWith(t.Context(), 0) // the port itself, again
	expect.Error(t, "what can't be found ends", err, "none found")
}

func TestFreePortWith(t *testing.T) {
	t.Parallel()
	port, err := FreePortWith(t.Context(), 1000, -1000)
	expect.NoError(t, err)
	if port+1000 > LastPort {
		t.Errorf("port %d: the kernel may give %d to a connection", port, port+1000)
	}
	for _, given := range []int{port, port + 1000, port - 1000} {
		if reserve(given) {
			t.Errorf("port %d goes with %d, and would be given to another while its server restarts", given, port)
		}
	}
}
