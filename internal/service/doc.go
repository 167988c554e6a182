// Package service says which instances a pod has: under which service names, at which ports, in which registries, what
// they carry besides, and how long the pod drains. It is pure. Every error it returns is bad input, to be shown to whoever
// wrote the pod's template: it says what to write.
package service
