//go:build nextrecord

package lifecycle

// recordVersion of a later Rollcall, which make e2e rolls back.
const recordVersion = 2
