package registrytest

import (
	"slices"
	"testing"
)

// Case is one thing that the contract asks of every driver.
type Case struct {
	// Name is stable: it is the subtest's name, and what a report of a broken driver cites.
	Name string
	// Why says what goes wrong in production where a driver fails the case.
	Why string
	// Needs lists the capabilities without which the case is skipped.
	Needs []Capability

	run func(*world)
}

// Alone reports whether the case wants the registry for itself: it restarts it.
func (c Case) Alone() bool { return slices.Contains(c.Needs, Restart) }

// Run runs every case as a subtest of its own name: first those that want the registry for themselves, then the others
// in parallel.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if err := h.check(); err != nil {
		t.Fatalf("registrytest: %v", err)
	}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if !c.Alone() { // a parallel subtest begins when all that are not have ended
				t.Parallel()
			}
			c.Run(t, h)
		})
	}
}

// Run runs the case on a driver of the harness.
func (c Case) Run(t T, h Harness) {
	t.Helper()
	for _, need := range c.Needs {
		if why := h.missing(need); why != "" {
			t.Skipf("%s skipped: lacks %s: %s", c.Name, need, why)
			return
		}
	}
	w := newWorld(t, c, h)
	for _, need := range c.Needs {
		if has, isInterface := w.has[need]; isInterface && !has {
			t.Skipf("%s skipped: lacks %s: the driver has no such methods", c.Name, need)
			return
		}
	}
	c.run(w)
}

// needing gives cases that name no needs these.
func needing(cases []Case, needs ...Capability) []Case {
	for i := range cases {
		if cases[i].Needs == nil {
			cases[i].Needs = needs
		}
	}
	return cases
}

// Cases returns the suite, for those who run it by other means than [Run].
func Cases() []Case {
	var all []Case
	for _, group := range [][]Case{
		stateCases(), markCases(), ownerCases(), foreignCases(), nameCases(), detailCases(), callCases(), errorCases(), listCases(),
		getCases(), probeCases(), heartbeatCases(), batchCases(), appCases(), closeCases(), restartCases(),
	} {
		all = append(all, group...)
	}
	return all
}
