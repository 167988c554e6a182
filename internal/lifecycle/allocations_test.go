//go:build !race

package lifecycle

import "testing"

// TestAllocations holds what each pod costs to a ceiling, a little above what it takes: the collector's work is a good part of
// a manager's. Raise one only with a reason. The race detector allocates by itself, so make verify runs this without it.
func TestAllocations(t *testing.T) { //nolint:paralleltest // other tests' allocations would count
	ceilings := map[string]float64{"HooksOf": 9, "RecordOf": 25, "Decide": 8, "Patch": 25}
	for name, do := range work(t) {
		if got := testing.AllocsPerRun(100, do); got > ceilings[name] {
			t.Errorf("%s: %v allocations, and the ceiling is %v", name, got, ceilings[name])
		}
	}
}
