package orders

import "testing"

// TestCommand: the command that an Event prints approves at the Lease of the manager that made it.
func TestCommand(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct{ reason, namespace, lease, finds string }{
		"kubectl rollcall resync --approve": {
			reason: "the plugin's own defaults", namespace: Namespace, lease: Lease, finds: Lease,
		},
		"kubectl rollcall resync --approve --rollcall-namespace=two": {
			reason: "an installation elsewhere", namespace: "two", lease: Lease, finds: Lease,
		},
		"kubectl rollcall resync --approve --leader-election-id=second": {
			reason: "two installations in one namespace", namespace: Namespace, lease: "second", finds: "second",
		},
		"kubectl rollcall resync --approve --rollcall-namespace=two --leader-election-id=b.c": {
			reason: "two in one that has another name", namespace: "two", lease: "b.c", finds: "b.c",
		},
	} {
		got := Command(c.namespace, c.lease)
		note := "5 of 7 entries. If they should go, " + HowToApprove(got, "abc") + ". Examples: --leader-election-id=x"
		if got != want || LeaseIn(note) != c.finds || DigestIn(note) != "abc" {
			t.Errorf("%s: got %q with Lease %q, want %q with %q", c.reason, got, LeaseIn(note), want, c.finds)
		}
	}
}
