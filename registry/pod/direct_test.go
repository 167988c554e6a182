package pod_test

import (
	"net"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPodsAreNotCalledThroughAProxy: it would be shown the token that opens all pods, and may not reach them.
func TestPodsAreNotCalledThroughAProxy(t *testing.T) {
	t.Parallel()
	a := listen(t, net.JoinHostPort(addressOfThisMachine(t), "0"))
	a.Register()
	in := instance()
	in.Address = addressOfThisMachine(t)
	steers := open(t, with(a.port())).AppEntries()
	expect.NoError(t, steers.FailOver(t.Context(), in))
	state, err := steers.Get(t.Context(), in)
	expect.NoError(t, err)
	expect.Equal(t, registry.OutOfService, state, "what the pod answers")
}

// addressOfThisMachine is one for which the environment's proxy counts: for 127.0.0.1 none does.
func addressOfThisMachine(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	expect.NoError(t, err)
	for _, one := range all {
		if at, is := one.(*net.IPNet); is && at.IP.To4() != nil && at.IP.IsGlobalUnicast() {
			return at.IP.String()
		}
	}
	t.Skip("this machine has no address but 127.0.0.1")
	return ""
}
