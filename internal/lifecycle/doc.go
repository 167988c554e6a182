// Package lifecycle decides, from what a pod is now, what the registry shall say of it and what Kruise may be told once
// the registry has acknowledged. It is pure: no client, no context, no clock.
package lifecycle
