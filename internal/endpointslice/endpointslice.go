package endpointslice

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// kubeletReads is how long kubelet may write readiness by a condition that it has read before the last one.
	kubeletReads = 2 * time.Second
)

// view is what the caches have of a pod.
type view struct {
	// pod is nil if the cache has none of this UID.
	pod *lifecycle.Pod
	// slices are those that list the pod.
	slices []*discoveryv1.EndpointSlice
	uid    string
	now    time.Time
	// shownFor is how long this process has seen the condition as it is: the time in it can be of another manager's clock.
	shownFor time.Duration
}

// in returns nil if the Services' clients are given the pod, and Rollcall can take it out again.
func (v view) in() error {
	if v.pod == nil {
		return registry.NotYet(errors.New("the pod is not in the cache"))
	}
	shown := conditionOf(v.pod, lifecycle.ConditionInRotation)
	switch {
	case !gated(v.pod):
		return registry.Terminal(fmt.Errorf("the pod lacks the readiness gate %s, so Rollcall could not take it out: %s",
			lifecycle.ConditionInRotation, addGate))
	case shown.Status != corev1.ConditionTrue:
		return registry.NotYet(fmt.Errorf("condition %s is not True yet", lifecycle.ConditionInRotation))
	case len(v.slices) == 0: // without a Service, or with a controller that is down or behind: the slices don't tell which
		return registry.NotYet(fmt.Errorf("no EndpointSlice in namespace %s lists the pod yet: if no Service selects it, create one whose "+
			"selector matches its labels, or remove the registry from annotation rollcall.dev/registries", v.pod.Namespace))
	}
	if shut := v.serviced(func(c discoveryv1.EndpointConditions) bool { return !isReady(c) }); len(shut) > 0 {
		return registry.NotYet(fmt.Errorf("the pod is not ready yet in EndpointSlices of Service %s", strings.Join(shut, ", ")))
	}
	return nil
}

// out returns nil if no Service's clients are given the pod, and nothing that was read before can change that.
func (v view) out() error {
	given := strings.Join(v.serviced(isGiven), ", ")
	shown, ready := conditionOf(v.pod, lifecycle.ConditionInRotation), conditionOf(v.pod, corev1.PodReady)
	switch {
	case v.pod == nil, v.pod.DeletionTimestamp != nil, !gated(v.pod) && given == "" && ready.Status != corev1.ConditionTrue:
		return stillGiven(given)
	case !gated(v.pod):
		by := "clients of Service " + given + " are given the pod"
		if given == "" { // the slices may lag
			by = "clients of every Service that selects the pod are given it, since it is ready"
		}
		return registry.Terminal(fmt.Errorf("%s, and it lacks the readiness gate %s, by which Rollcall "+
			"takes pods out: %s; set markPodNotReady: true in the hook for pods that come to it later, and skip this one with kubectl rollcall skip",
			by, lifecycle.ConditionInRotation, addGate))
	case shown.Status == corev1.ConditionTrue:
		return registry.NotYet(fmt.Errorf("condition %s is not False yet", lifecycle.ConditionInRotation))
	case ready.Status == corev1.ConditionTrue:
		return registry.NotYet(fmt.Errorf("kubelet has yet to follow condition %s", lifecycle.ConditionInRotation))
	case shown.Status != "" && v.shownFor < kubeletReads && !v.followed(shown, ready):
		return registry.NotYet(fmt.Errorf("condition %s is False for less than %s, and kubelet may still follow the one before",
			lifecycle.ConditionInRotation, kubeletReads))
	}
	return stillGiven(given)
}

// followed reports whether kubelet found the pod not ready after the condition was written. If a time is in the future, its clock is wrong.
func (v view) followed(shown, ready lifecycle.PodCondition) bool {
	return !ready.LastTransitionTime.Before(&shown.LastTransitionTime) && !ready.LastTransitionTime.After(v.now.Add(time.Second))
}

func stillGiven(by string) error {
	if by == "" {
		return nil
	}
	return registry.NotYet(fmt.Errorf("clients are still given the pod by EndpointSlices of Service %s", by))
}

const addGate = "add {conditionType: " + string(lifecycle.ConditionInRotation) + "} to spec.readinessGates of the workload's template"

func gated(pod *lifecycle.Pod) bool {
	return slices.Contains(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: lifecycle.ConditionInRotation})
}

// conditionOf is zero if the pod has none.
func conditionOf(pod *lifecycle.Pod, kind corev1.PodConditionType) (condition lifecycle.PodCondition) {
	if pod == nil {
		return condition
	}
	if i := slices.IndexFunc(pod.Status.Conditions, func(c lifecycle.PodCondition) bool { return c.Type == kind }); i >= 0 {
		condition = pod.Status.Conditions[i]
	}
	return condition
}

// serviced returns the Services in whose EndpointSlices the pod has such conditions, sorted and unique.
func (v view) serviced(such func(discoveryv1.EndpointConditions) bool) (services []string) {
	for _, slice := range v.slices {
		if slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return uidOf(e) == v.uid && such(e.Conditions) }) {
			services = append(services, slice.Labels[discoveryv1.LabelServiceName])
		}
	}
	slices.Sort(services)
	return slices.Compact(services)
}

// uidOf is empty for an endpoint that is not a pod.
func uidOf(e discoveryv1.Endpoint) string {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return ""
	}
	return string(e.TargetRef.UID)
}

// isReady: nil counts as true. A pod that is being deleted is not ready.
// https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#conditions
func isReady(c discoveryv1.EndpointConditions) bool { return c.Ready == nil || *c.Ready }

// isGiven reports whether readiness gives the pod to clients. With publishNotReadyAddresses a Service has pods that are ready and do not
// serve: its clients ask for them, and nothing can take them out.
func isGiven(c discoveryv1.EndpointConditions) bool {
	return isReady(c) && (c.Serving == nil || *c.Serving)
}
