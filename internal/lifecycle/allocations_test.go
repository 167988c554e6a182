//go:build !race

package lifecycle

import (
	"strconv"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// TestAllocations holds what each pod costs to a ceiling, a little above what it takes: the collector's work is a good part of
// a manager's. Raise one only with a reason. The race detector allocates by itself, so make verify runs this without it.
func TestAllocations(t *testing.T) { //nolint:paralleltest // other tests' allocations would count
	ceilings := map[string]float64{"HooksOf": 5, "RecordOf": 25, "Decide": 8, "Patch": 25}
	for name, do := range work(t) {
		if got := testing.AllocsPerRun(100, do); got > ceilings[name] {
			t.Errorf("%s: %v allocations, and the ceiling is %v", name, got, ceilings[name])
		}
	}
	in, many := Input{Pod: podIn(appspub.LifecycleStatePreparingDelete), Ownership: testOwnership()}, hookOf()
	for i := range 1000 {
		many.FinalizersHandler = append(many.FinalizersHandler, "example.com/f"+strconv.Itoa(i))
	}
	in.Hooks = HooksOf(&Workload{Lifecycle: &appspub.Lifecycle{PreDelete: many}}, in.Ownership)
	if got := testing.AllocsPerRun(10, func() { Decide(in) }); got > 100 {
		t.Errorf("Decide with 1,000 refused handlers: %v allocations, and a tenant can write so many", got)
	}
}
