package driverkit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAServerThatDropsPacketsLeavesTimeForOthers has a first server to which no connection comes about, and a time-out that
// is shorter than the network's own.
func TestAServerThatDropsPacketsLeavesTimeForOthers(t *testing.T) {
	t.Parallel()
	endpoint := "http://" + full(t) + "," + drivertest.Answering(t, http.StatusOK, nil, "")
	c := newClient(t, registry.Config{Endpoint: endpoint, Timeout: 10 * time.Second}, driverkit.HTTPOptions{})
	err := c.Try(t.Context(), driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
		_, err := s.Do(ctx, driverkit.Request{Method: http.MethodGet})
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNothingLandsLateOfAConnectionThatTookTooLong: no server has seen the change, whether packets were dropped or a handshake hung.
func TestNothingLandsLateOfAConnectionThatTookTooLong(t *testing.T) {
	t.Parallel()
	type row struct{ server, method string }
	dropping, hanging := "http://"+full(t), "https://"+registrytest.SilentAddress(t)
	expect.Each(t, map[string]row{
		"packets are dropped, POST": {dropping, http.MethodPost}, "packets are dropped, GET": {dropping, http.MethodGet},
		"the handshake hangs, POST": {hanging, http.MethodPost}, "the handshake hangs, GET": {hanging, http.MethodGet},
	}, func(t *testing.T, tc row) {
		// Each server of two has half of the time, so that the call's own is not up, on a busy machine either.
		cfg := registry.Config{Endpoint: tc.server + "," + tc.server + "/other", Timeout: 4 * time.Second}
		_, err := within(t.Context(), newClient(t, cfg, driverkit.HTTPOptions{}), driverkit.Request{Method: tc.method})
		if err == nil || drivertest.MayLand(err) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want one of a call that can't land late", err)
		}
	})
}

// full returns an address to which no further connection comes about: Linux drops what does not fit into the queue of a
// listener, and this one's has room for one.
func full(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(socket) })
	expect.NoError(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	expect.NoError(t, syscall.Listen(socket, 0))
	name, err := syscall.Getsockname(socket)
	expect.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 10 {
		conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("ten connections came about to a listener whose queue has room for one")
	return ""
}
