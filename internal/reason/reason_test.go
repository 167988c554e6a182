package reason

import "testing"

func TestOfRegistry(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]bool{
		RegistryUnavailable: true, RegistryTimeout: true, RegistryRefused: true, UnknownRegistry: true, Settling: true,
		NotConfirmed: true, AlsoRegistersItself: true, AgentUnavailable: true, AgentRefused: true,
		"": false, Draining: false, Queued: false, NotPermitted: false, Stopping: false, InvalidPod: false, ServiceClaimed: false,
		HandlerRefused: false, UnsupportedWorkload: false, UnknownState: false, NotReady: false, NoAddress: false,
	} {
		if got := reason.OfRegistry(); got != want {
			t.Errorf("%q: got %t, want %t", reason, got, want)
		}
	}
}
