// Package resync keeps the registry in step with the cluster besides the reconciler, which looks at one pod at a time.
// For now it renews what a registry would forget.
package resync
