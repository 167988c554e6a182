//go:build race

package lifecycle

// The race detector finds nothing in what is pure, and makes it ten times as slow. Under it one of everyRow rows of the
// enumeration is checked: make test-unit runs all of them without it.
const everyRow = 16
