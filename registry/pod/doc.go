// Package pod asks the application in a pod to leave rotation and to join it, by HTTP requests that the configuration describes: Dubbo's
// QOS, Spring's actuator and others. The application's registry does not matter, and Rollcall does not talk to it.
//
// What the application answers to a third request, whether it is in rotation, is the acknowledgement: before each change, so that a call
// that is repeated changes nothing, and after it.
package pod
