//go:build nextrecord

package lifecycle

// recordVersion is that of a later Rollcall: make e2e upgrades to it and rolls back in the middle of a rollout.
const recordVersion = 2
