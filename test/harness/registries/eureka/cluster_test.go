package eureka

import (
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestDisagree plays what a cluster is asked until it is whole.
func TestDisagree(t *testing.T) {
	t.Parallel()
	type peers struct{ one, other map[string]entry }
	up, out := entry{"UP", true}, entry{"STARTING", true}
	newUp, newOut := entry{"UP", false}, entry{"STARTING", false}
	has := func(e entry) map[string]entry { return map[string]entry{"web": e} }
	expect.Each(t, map[string]struct {
		reason string
		seen   []peers
		whole  []bool
	}{
		"they agree":         {"nothing is left to tell", []peers{{has(up), has(newUp)}}, []bool{true}},
		"one lacks it":       {"it has just started", []peers{{has(up), nil}, {has(up), has(newUp)}}, []bool{false, true}},
		"one has removed it": {"the other one has not heard", []peers{{has(up), has(up)}, {nil, has(up)}}, []bool{true, false}},
		"a change since": {
			"it is on its way as always", []peers{{nil, has(up)}, {map[string]entry{"web": up, "api": newOut}, has(up)}}, []bool{false, true},
		},
		"a late copy": {
			"one that has just started got what was before", []peers{{has(out), nil}, {has(out), has(newUp)}, {has(out), has(newOut)}},
			[]bool{false, false, true},
		},
	}, func(t *testing.T, tc struct {
		reason string
		seen   []peers
		whole  []bool
	}) {
		var unheard map[string]bool
		for i, now := range tc.seen {
			var err error
			unheard, err = disagree(now.one, now.other, unheard)
			expect.Equal(t, tc.whole[i], err == nil, "the %d. time, with error %v: %s", i+1, err, tc.reason)
		}
	})
}
