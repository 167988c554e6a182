//go:build race

package lifecycle

// The race detector finds nothing in what is pure, and makes it ten times as slow. Under it one of everyRow rows of the
// enumeration is checked, the model walks less, and its mutants are left out: make test-unit runs all of that without it.
const (
	everyRow      = 16
	modelWalks    = 60
	leavesMutants = true
)
