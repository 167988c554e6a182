package registrytest

import (
	"slices"
	"testing"
)

// testCase is one thing that the contract asks of every driver.
type testCase struct {
	// name is stable: it is the subtest's name, and what a report of a broken driver cites.
	name string
	// why is what goes wrong in production if a driver fails the case.
	why string
	// needs lists the capabilities without which the case is skipped.
	needs []Capability
	// apps: the case also applies to a driver that writes no entries of its own and only steers those of applications.
	apps bool

	run func(*world)
}

// Run runs every case as a subtest of its own name: first those that need the registry for themselves, then the others
// in parallel.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if err := h.check(); err != nil {
		t.Fatalf("registrytest: %v", err)
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			if !slices.Contains(c.needs, hasRestart) { // a parallel subtest begins when all that are not have ended
				t.Parallel()
			}
			c.runOn(t, h)
		})
	}
}

// runOn runs the case on a driver of the harness.
func (c testCase) runOn(t testing.TB, h Harness) {
	t.Helper()
	for _, need := range c.needs {
		if why := h.missing(need); why != "" {
			t.Skipf("%s skipped: lacks %s: %s", c.name, need, why)
		}
	}
	w := newWorld(t, c, h)
	for _, need := range c.needs {
		if has, isInterface := w.has[need]; isInterface && !has {
			t.Skipf("%s skipped: lacks %s: the driver has no such methods", c.name, need)
		}
	}
	if w.has[callsPods] && !c.apps {
		t.Skipf("%s skipped: the driver calls pods, and writes no entries", c.name)
	}
	c.run(w)
}

// needing gives these needs to the cases that list none.
func needing(cases []testCase, needs ...Capability) []testCase {
	for i := range cases {
		if cases[i].needs == nil {
			cases[i].needs = needs
		}
	}
	return cases
}

func cases() []testCase {
	return slices.Concat(
		stateCases(), markCases(), ownerCases(), foreignCases(), nameCases(), detailCases(), callCases(), errorCases(), listCases(),
		getCases(), probeCases(), heartbeatCases(), batchCases(), appCases(), placeCases(), costCases(), closeCases(), restartCases(),
	)
}
