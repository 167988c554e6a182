// Package service says which instances a pod has: under which service names, at which ports, in which registries, what
// they carry besides, and how long the pod drains. It is pure. Every error it returns is bad input, and tells the author of
// the pod's template what to write.
package service
