package suggest

import (
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"drain", "registry", "registries", "panicThreshold", "pre-delete", "pre-normal"}
	type row struct{ reason, word, want string }
	expect.Each(t, map[string]row{
		"a letter too few":  {"a slip of one letter", "regisry", "registry"},
		"a letter too many": {"a slip of one letter", "drrain", "drain"},
		"two swapped":       {"the slip that is made most often", "drian", "drain"},
		"other case":        {"only the case differs", "panicthreshold", "panicThreshold"},
		"the nearer of two": {"pre-delete is near as well", "pre-norml", "pre-normal"},
		"another word":      {"a guess that is far off misleads", "unready", ""},
		"a short word":      {"two letters have no two to spare", "pr", ""},
		"nothing":           {"no word was written", "", ""},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, Nearest(tc.word, known), "Nearest(%q): %s", tc.word, tc.reason)
	})
	if got := Nearest("drain", nil); got != "" {
		t.Errorf("of no words %q is near", got)
	}
}
