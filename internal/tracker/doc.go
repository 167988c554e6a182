// Package tracker holds what this process knows of each instance of each pod in each registry. [Instance] is a pure state machine for
// one; [Tracker] holds the pods, in the only lock. A restart loses it all, on purpose: only a call of this process is known to have been
// acknowledged with nothing after it.
package tracker
