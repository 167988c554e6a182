// Package plugin is the kubectl plugin. view.go and explain.go are pure: they say of a pod what the manager's own rules say
// of it, from what stands in the API server. cluster.go reads that; a file for each command prints it.
package plugin
