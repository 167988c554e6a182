// Package controller holds the pod reconciler: observe, decide, converge, patch.
//
// Each step has a file. observe.go gathers what a decision rests on; lifecycle.Decide decides; converge.go makes the
// registry say what it shall, by the rules that keep a crash or a lost answer from being taken for an acknowledgement;
// patch.go lets Kruise go on. ledger.go is what this process knows of its own calls, report.go tells people why a pod
// waits, depart.go undoes what a pod leaves behind that is no longer there.
package controller
