package orders

import "testing"

// TestCommand: the command that an Event shows approves at the Lease of the manager that made it.
func TestCommand(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct{ reason, namespace string }{
		"kubectl rollcall resync --approve":                          {reason: "the plugin's own default", namespace: Namespace},
		"kubectl rollcall resync --approve --rollcall-namespace=two": {reason: "an installation elsewhere", namespace: "two"},
	} {
		got := Command(c.namespace)
		note := "5 of 7 entries. If they should go, " + HowToApprove(got, "abc") + ". Examples: x"
		if got != want || DigestIn(note) != "abc" {
			t.Errorf("%s: got %q, want %q", c.reason, got, want)
		}
	}
}
