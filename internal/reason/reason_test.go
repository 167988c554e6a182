package reason

import "testing"

func TestOfRegistry(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]bool{
		RegistryUnavailable: true, RegistryRefused: true, NotEffective: true, UnknownRegistry: true, Settling: true,
		NotConfirmed: true, AlsoRegistersItself: true, AgentUnavailable: true, AgentRefused: true,
		AppNotRegistered: true, AppEntryRemains: false,
		"": false, Draining: false, Queued: false, ManagerNotReady: false, InvalidPod: false, ServiceNotAllowed: false,
		HandlerRefused: false, UnknownState: false, NotReady: false, NoAddress: false,
	} {
		if got := reason.OfRegistry(); got != want {
			t.Errorf("%q: got %t, want %t", reason, got, want)
		}
	}
}

func TestWhatOnlyAnotherCallTells(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]bool{
		RegistryUnavailable: true, RegistryRefused: true, AgentUnavailable: true, AgentRefused: true,
		NotConfirmed: true, NotEffective: true, AppNotRegistered: true, AlsoRegistersItself: true,
		"": false, Draining: false, Settling: false, Queued: false, ManagerNotReady: false,
		UnknownRegistry: false, InvalidPod: false, ServiceNotAllowed: false, HandlerRefused: false, PatchRefused: false,
		NotReady: false, NoAddress: false, PanicThreshold: false, HeldNotReady: false,
	} {
		if got := reason.NeedsAnotherCall(); got != want {
			t.Errorf("%q needs another call: got %t, want %t", reason, got, want)
		}
	}
	for _, reason := range []Reason{Queued, ManagerNotReady} {
		if !reason.BeforeTheCall() {
			t.Errorf("%q comes before the call, so that nothing new is known", reason)
		}
	}
}

func TestPageIsThatOfTheRelease(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "v1.2.3", "v1.2.3-4-gabc1234": "main", "v1.2.3-dirty": "main", "abc1234": "main", "(devel)": "main", "unknown": "main", "": "main",
	} {
		want = "https://github.com/rollcall-dev/rollcall/blob/" + want + "/docs/reference/reasons.md#notready"
		if got := NotReady.Page(version); got != want {
			t.Errorf("version %q: got %s, want %s", version, got, want)
		}
	}
}
