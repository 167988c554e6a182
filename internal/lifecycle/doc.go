// Package lifecycle decides from a pod what its registries must hold and which hooks may follow. It is pure: no client, context or clock.
package lifecycle
