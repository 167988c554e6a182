//go:build !race

package controller

import "testing"

// TestAllocations holds a reconcile that finds nothing to do to a ceiling. See internal/lifecycle/allocations_test.go.
func TestAllocations(t *testing.T) { //nolint:paralleltest // other tests' allocations would count
	const ceiling = 49
	r, id := steady(t)
	expectSteady(t, r, id)
	if got := testing.AllocsPerRun(100, func() { expectSteady(t, r, id) }); got > ceiling {
		t.Errorf("%v allocations, and the ceiling is %d", got, ceiling)
	}
}
