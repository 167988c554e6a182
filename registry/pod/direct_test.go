package pod_test

import (
	"net"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPodsAreNotCalledThroughAProxy: it would be shown the token that opens all pods, and may not reach them.
func TestPodsAreNotCalledThroughAProxy(t *testing.T) {
	t.Parallel()
	own := drivertest.OwnAddress(t) // for 127.0.0.1 no proxy of the environment counts
	a := listen(t, net.JoinHostPort(own, "0"))
	a.Register()
	in := instance()
	in.Address = own
	steers := open(t, with(a.port())).AppEntries()
	expect.NoError(t, steers.FailOver(t.Context(), in))
	state, err := steers.Get(t.Context(), in)
	expect.NoError(t, err)
	expect.Equal(t, registry.OutOfService, state, "what the pod answers")
}
