// Package bubble plays tests in bubbles of synctest, in which time passes only while every goroutine waits.
package bubble

import (
	"testing"
	"testing/synctest"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// Each plays every row of a table in a bubble of its own, all of them in parallel.
func Each[Row any](t *testing.T, rows map[string]Row, play func(t *testing.T, row Row)) {
	t.Helper()
	expect.Each(t, rows, func(t *testing.T, row Row) {
		synctest.Test(t, func(t *testing.T) { play(t, row) })
	})
}

// Scenes is Each for tests that have no more in common than what they are about.
func Scenes(t *testing.T, scenes map[string]func(t *testing.T)) {
	t.Helper()
	Each(t, scenes, func(t *testing.T, play func(*testing.T)) { play(t) })
}
