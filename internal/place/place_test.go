package place_test

import (
	"testing"

	"github.com/rollcall-dev/rollcall/internal/place"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, template, service string
		place, bare               string
	}{
		"no places":          {"a service is its name", "", "a/web", "", "a/web"},
		"one part":           {"the name is the rest", "{namespace}", "a/web", "a", "web"},
		"a name with slash":  {"the template says how many are the place's", "{namespace}", "a/b/web", "a", "b/web"},
		"two parts":          {"both are the place's", "{namespace}/{label:team}", "a/b/web/1", "a/b", "web/1"},
		"a label with slash": {"it is the key's", "{label:example.com/team}", "a/web", "a", "web"},
		"of another shape":   {"a record of another configuration has it", "{namespace}/{label:team}", "a/web", "", "a/web"},
		"no place at all":    {"the same", "{namespace}", "web", "", "web"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, name := place.Split(tc.template, tc.service)
			if at != tc.place || name != tc.bare {
				t.Errorf("got %q and %q, want %q and %q: %s", at, name, tc.place, tc.bare, tc.reason)
			}
			expect.Equal(t, tc.service, place.Join(at, name), "joined")
		})
	}
}
