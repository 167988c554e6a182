//go:build race

package lifecycle

// everyRow is how many rows of the enumeration one is checked of. The race detector finds nothing in what is pure, and makes
// it ten times as slow; make test-unit checks all rows without it.
const everyRow = 16
