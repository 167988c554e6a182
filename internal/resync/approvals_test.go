package resync

import (
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestApprovals: a digest counts while it is given and asked, once, and only if it was given after it was read for the first time.
func TestApprovals(t *testing.T) {
	t.Parallel()
	a := &approvals{}
	take := func(why string, wantNew bool, wantSpent []string, digests ...string) {
		t.Helper()
		isNew, spent := a.take(digests)
		expect.Equal(t, wantNew, isNew, "%s: new", why)
		if !slices.Equal(spent, wantSpent) {
			t.Errorf("%s: spent are %q, want %q", why, spent, wantSpent)
		}
	}
	counts := func(why string, want ...string) {
		t.Helper()
		for _, digest := range []string{"d1", "d2", "d3", "other"} {
			expect.Equal(t, slices.Contains(want, digest), a.counts(digest), "%s: %s counts", why, digest)
		}
	}
	a.open("one", []string{"d1"})
	take("a former leader may have used it", false, []string{"d1"}, "d1")
	take("it is withdrawn", false, nil)
	a.open("two", []string{"d2"})
	take("what no registry asks for is none", true, []string{"other"}, "d1", "d2", "other")
	counts("each registry has its own", "d1", "d2")
	take("it is the same once more", false, []string{"other"}, "d1", "d2", "other")
	counts("it is the same once more", "d1", "d2")

	a.keep(func(registry string) bool { return registry == "one" })
	counts("the registry is gone", "d1")
	a.open("two", []string{"d2"})
	take("it is used up", false, []string{"d2"}, "d1", "d2")
	take("it is withdrawn", false, nil, "d1")
	take("it is given again", true, nil, "d2", "d1")
	counts("it is given again", "d1", "d2")
	a.open("one", []string{"d3"})
	counts("something else is asked", "d2")
}
