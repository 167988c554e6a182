//go:build race

package controller

// The race detector makes the model ten times as slow: make test-unit runs all of it without.
const modelWalks = 30
