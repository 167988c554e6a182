package registrytest

import (
	"net"
	"testing"
)

// UnusedAddress returns a host:port on loopback that refuses connections until the test ends. No other process can start to
// listen there meanwhile.
func UnusedAddress(t testing.TB) string {
	t.Helper()
	listener := listen(t)
	// The local port of an outgoing connection is taken, yet nothing listens on it.
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("connecting to a listener on loopback: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

// SilentAddress returns a host:port on loopback that takes connections until the test ends, and never answers.
func SilentAddress(t testing.TB) string {
	t.Helper()
	// The kernel completes the connections; nothing ever accepts them.
	return listen(t).Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening on loopback: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
