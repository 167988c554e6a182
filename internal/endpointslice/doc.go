// Package endpointslice is the driver endpointslice: the registry is the EndpointSlices of the Services that select a pod, and Rollcall
// steers them by the pod's condition InRotation, which is a readiness gate of the pod.
//
//	endpointslice.go  PURE: what a pod and its endpoints show
//	driver.go         the driver
//	watch.go          the informer that it reads
package endpointslice
