package registrytest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

func TestUnusedAddressRefuses(t *testing.T) {
	t.Parallel()
	addr := registrytest.UnusedAddress(t)
	for range 3 {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting to %s: got error %v, want connection refused", addr, err)
		}
	}
	if l, err := net.Listen("tcp", addr); err == nil {
		_ = l.Close()
		t.Errorf("listening at %s: got success, want the port to be taken", addr)
	}
}
