// Package resync keeps the registry in step with the cluster besides the reconciler, which looks at one pod at a time: it
// compares the whole registry with the whole cluster, and renews what a registry would forget.
package resync
