//go:build !nextrecord

package lifecycle

// recordVersion is what Rollcall writes. A record without one is of the first.
const recordVersion = 1
