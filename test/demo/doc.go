// Command demo shows Rollcall's main job on a real control plane with OpenKruise: a client that follows the registry
// loses no request while a CloneSet is created, updated in place, scaled and loses a pod.
//
//	make demo
//	make demo KEEP=1
//	make adopt REGISTRY=nacos
//	make adopt REGISTRY=nacos APP=dubbo
//
// It starts the test cluster, the manager, and a client that reads the registry once a second and sends requests to the pods
// it found there. In the last step the registry takes no writes for some seconds. Then it does the same without hooks, with a
// registry that follows the pods' readiness: once with a preStop sleep and OpenKruise's gracePeriodSeconds, as a careful team
// has it, and once without. The last line sums up; the exit status is 0 only if Rollcall lost nothing, the other ways lost
// something, and there were enough requests to tell. With KEEP=1 everything keeps running until Ctrl-C.
//
// make adopt has the application of each pod register itself, in a real registry and by a client that others wrote.
// Rollcall steers those entries. Without it, the same applications are on their own. No entry of an application may
// vanish while the application runs.
//
// The pods have no containers: package podserver answers for each on its own loopback address while its containers would
// run. They stop when they are updated or deleted, after their preStop sleep where they have one.
package main
