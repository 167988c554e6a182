package plugin

import (
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

// TestStatesOfAnotherVersion has a manager of another version answer.
func TestStatesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for state, want := range map[entries.State]string{"": "Unknown", "draining": "Draining", entries.In: "In"} {
		all := []entries.Entry{{Registry: "default", Service: "web", Endpoint: "10.0.0.1:80", State: state}}
		if got := registryOf(all); got != want {
			t.Errorf("state %q is shown as %q, want %q", state, got, want)
		}
		said := strings.Join(registrySentences(Pod{Entries: all}, nil), " ")
		if strings.Contains(said, "does not know") == (state == entries.In) {
			t.Errorf("of state %q it says %q", state, said)
		}
	}
}
