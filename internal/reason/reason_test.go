package reason

import (
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestOfRegistry(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]bool{
		RegistryUnavailable: true, RegistryRefused: true, NotEffective: true, UnknownRegistry: true, Settling: true,
		NotConfirmed: true, AlsoRegistersItself: true,
		AppNotRegistered: true, AppEntryRemains: false,
		"": false, Draining: false, Queued: false, ManagerNotReady: false, InvalidPod: false, ServiceNotAllowed: false,
		HandlerRefused: false, UnknownState: false, NotReady: false, NoAddress: false,
	} {
		expect.Equal(t, want, reason.OfRegistry(), "%q", reason)
	}
}

func TestWhatOnlyAnotherCallTells(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]bool{
		RegistryUnavailable: true, RegistryRefused: true,
		NotConfirmed: true, NotEffective: true, AppNotRegistered: true, AlsoRegistersItself: true,
		"": false, Draining: false, Settling: false, Queued: false, ManagerNotReady: false,
		UnknownRegistry: false, InvalidPod: false, ServiceNotAllowed: false, HandlerRefused: false, APIServerFailed: false,
		NotReady: false, NoAddress: false, PanicThreshold: false, HeldNotReady: false,
	} {
		expect.Equal(t, want, reason.NeedsAnotherCall(), "%q needs another call", reason)
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
		expect.Equal(t, want, NotReady.Page(version), "version %q", version)
	}
}
