// Package lifecycle decides, from what a pod is now, what the registry must say about it, and which hooks may be set or
// cleared after the registry has acknowledged. It is pure: no client, no context, no clock.
package lifecycle
