// Package controller holds the pod reconciler: observe, decide, converge, patch, report.
//
// Each step has a file. observe.go gathers what a decision rests on; lifecycle.Decide decides; plan.go says which changes
// that takes in which registries, and converge.go makes them; release.go says what is released without the registry;
// patch.go lets OpenKruise go on; report.go tells people why a pod waits. depart.go gathers what a pod leaves behind that is
// gone, and events.go has pods looked at. What this process knows of the registries is in package tracker.
package controller
