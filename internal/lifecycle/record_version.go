//go:build !nextrecord

package lifecycle

// recordVersion is the one that this version of Rollcall writes. A record without a version is of the first.
const recordVersion = 1
