// Package tracker holds what this process knows of each instance of each pod in each registry: what it asked for, what was
// acknowledged, what may still be carried out, what a list said. [Instance] is a pure state machine of one instance;
// [Tracker] holds the pods, in the only lock. What has to be kept alive in a registry, and what a registry has lost, come
// out of the same state.
//
// All of it is lost at a restart, and that is the point: only a call of this process is known to have been acknowledged
// with nothing after it.
package tracker
