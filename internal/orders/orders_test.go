package orders

import (
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestCommand: the commands that an Event shows approve at the Lease of the manager that made it.
func TestCommand(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]string{
		Namespace: "approve exactly these with kubectl rollcall resync --approve, or with " +
			"kubectl -n rollcall-system annotate lease rollcall --overwrite rollcall.dev/resync=0123456789ab",
		"two": "approve exactly these with kubectl rollcall resync --approve --rollcall-namespace=two, or with " +
			"kubectl -n two annotate lease rollcall --overwrite rollcall.dev/resync=0123456789ab",
	} {
		got := HowToApprove(namespace, "0123456789ab")
		note := "5 of 7 entries. If they should go, " + got + ", or wait. Examples: x"
		if got != want || DigestIn(note) != "0123456789ab" {
			t.Errorf("in namespace %s: got %q with digest %q, want %q", namespace, got, DigestIn(note), want)
		}
	}
}

// TestWith: whoever asks for one thing takes nothing back that was approved before, and leaves no word of an earlier request.
func TestWith(t *testing.T) {
	t.Parallel()
	const one, two = "0123456789ab", "ba9876543210"
	for value, c := range map[string]struct{ reason, want string }{
		"":                                {"the first word", "now"},
		"2026-11-27T12:00:00.123456789Z":  {"an earlier run", "now"},
		"Fri Nov 27 12:00:00 UTC 2026":    {"an earlier run by hand", "now"},
		one:                               {"an approval", one + ",now"},
		one + ", then\n" + two + ",":      {"two approvals by hand", one + "," + two + ",now"},
		"0123456789AB 0123456789abc 0a1b": {"none is a digest", "now"},
	} {
		expect.Equal(t, c.want, With(With(value, "now"), "now"), "%s, %q", c.reason, value)
	}
}

// TestWithout: what a person asks for stays when a leader takes out what is used up.
func TestWithout(t *testing.T) {
	t.Parallel()
	const one, two = "0123456789ab", "ba9876543210"
	for value, c := range map[string]struct{ reason, want string }{
		one:                         {"the only word", ""},
		two:                         {"another approval", two},
		one + ", now\n" + two + ",": {"others with it", "now," + two},
		one + "," + one:             {"given twice", ""},
	} {
		expect.Equal(t, c.want, Without(value, []string{one}), "%s, %q", c.reason, value)
	}
}

// TestRegistryIn: the plugin tells the Events of several registries apart.
func TestRegistryIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		Holds(5, 7, "prod") + ", which is more": `"prod"`,
		Holds(5, 7, `a "b" \c`) + ", so":        `"a \"b\" \\c"`,
		"5 of 7 entries":                        "",
		"nothing of " + Holds(5, 7, "prod"):     "",
	} {
		expect.Equal(t, want, RegistryIn(text), "%q", text)
	}
}
