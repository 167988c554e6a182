package suggest

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"drain", "registry", "registries", "panicThreshold", "pre-delete", "pre-normal"}
	for name, tc := range map[string]struct{ reason, word, want string }{
		"a letter too few":  {"a slip of one letter", "regisry", "registry"},
		"a letter too many": {"a slip of one letter", "drrain", "drain"},
		"two swapped":       {"the slip that is made most often", "drian", "drain"},
		"other case":        {"only the case differs", "panicthreshold", "panicThreshold"},
		"the nearer of two": {"pre-delete is near as well", "pre-norml", "pre-normal"},
		"another word":      {"a guess that is far off misleads", "unready", ""},
		"a short word":      {"two letters have no two to spare", "pr", ""},
		"nothing":           {"no word was written", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Nearest(tc.word, known); got != tc.want {
				t.Errorf("Nearest(%q) = %q, want %q\nreason: %s", tc.word, got, tc.want, tc.reason)
			}
		})
	}
	if got := Nearest("drain", nil); got != "" {
		t.Errorf("of no words %q is near", got)
	}
}
