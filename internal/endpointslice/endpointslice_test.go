package endpointslice

import (
	"cmp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

var now = time.Unix(1_800_000_000, 0)

// shown is a pod with the gate, as the caches have it: its condition and its readiness, each since so long.
func shown(inRotation, ready corev1.ConditionStatus, since, readySince time.Duration) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.UID = "shop", "1"
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: lifecycle.ConditionInRotation}}
	for kind, c := range map[corev1.PodConditionType]struct {
		status corev1.ConditionStatus
		since  time.Duration
	}{lifecycle.ConditionInRotation: {inRotation, since}, corev1.PodReady: {ready, readySince}} {
		if c.status != "" {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
				Type: kind, Status: c.status, LastTransitionTime: metav1.NewTime(now.Add(-c.since)),
			})
		}
	}
	return pod
}

func without(pod *corev1.Pod) *corev1.Pod { pod.Spec.ReadinessGates = nil; return pod }

func ending(pod *corev1.Pod) *corev1.Pod {
	pod.DeletionTimestamp = new(metav1.NewTime(now))
	return pod
}

// of is a slice of a Service in which the pod is ready, and serving.
func of(service string, ready, serving *bool) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{
		{TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: "another"}},
		{TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: "1"}, Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving}},
	}}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	return slice
}

func TestViews(t *testing.T) {
	t.Parallel()
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	on, off := new(true), new(false)
	type row struct {
		reason string
		pod    *corev1.Pod
		slices []*discoveryv1.EndpointSlice
		// in and out are what is missing; empty if nothing is.
		in, out string
		// seen is how long this process has seen the condition; if it is zero, the condition's time is right.
		seen time.Duration
	}
	const inRotation = "condition rollcall.dev/InRotation "
	both := []*discoveryv1.EndpointSlice{of("web", on, on), of("admin", on, on)}
	neither := []*discoveryv1.EndpointSlice{of("web", off, off), of("admin", off, off)}
	expect.Each(t, map[string]row{
		"in":                                {"both Services have it", shown(yes, yes, time.Hour, time.Hour), both, "", inRotation + "is not False yet", 0},
		"conditions left out":               {"the API says that nil is true", shown(yes, yes, time.Hour, time.Hour), []*discoveryv1.EndpointSlice{of("web", nil, nil)}, "", inRotation + "is not False yet", 0},
		"out":                               {"neither has it", shown(no, no, time.Hour, time.Hour), neither, inRotation + "is not True yet", "", 0},
		"in one of two":                     {"clients of the other don't find it", shown(yes, yes, time.Hour, time.Hour), []*discoveryv1.EndpointSlice{of("web", on, on), of("admin", off, off)}, "Service admin", inRotation + "is not False yet", 0},
		"out of one of two":                 {"clients of the other find it", shown(no, no, time.Hour, time.Hour), []*discoveryv1.EndpointSlice{of("web", on, on), of("admin", off, off)}, "not True yet", "Service web", 0},
		"kubelet has yet to follow":         {"it may be a moment before the slice", shown(no, yes, 0, time.Hour), neither, "not True yet", "kubelet has yet to follow", 0},
		"kubelet has followed":              {"in the same second", shown(no, no, 0, 0), neither, "not True yet", "", 0},
		"kubelet may still say yes":         {"it read True a moment ago, and was not ready before", shown(no, no, time.Second, time.Hour), neither, "not True yet", "may still follow", 0},
		"kubelet has had the time":          {"it has read False by now", shown(no, no, 3*time.Second, time.Hour), neither, "not True yet", "", 0},
		"never in":                          {"there is no condition, and nothing to follow", shown("", no, 0, time.Hour), neither, "not True yet", "", 0},
		"no gate, in":                       {"it could not be taken out", without(shown("", yes, 0, time.Hour)), both, "lacks the readiness gate", "clients of Service admin, web are given", 0},
		"no gate, out":                      {"something else made it unready", without(shown("", no, 0, time.Hour)), neither, "lacks the readiness gate", "", 0},
		"is being deleted":                  {"Kubernetes takes it out by itself", ending(shown(yes, yes, time.Hour, time.Hour)), []*discoveryv1.EndpointSlice{of("web", off, on)}, "Service web", "", 0},
		"is being deleted, still in":        {"the controller has to follow", ending(shown(yes, yes, time.Hour, time.Hour)), both, "", "Service admin, web", 0},
		"is gone, still in":                 {"the controller has to follow", nil, both, "not in the cache", "Service admin, web", 0},
		"is gone":                           {"nothing lists it", nil, nil, "not in the cache", "", 0},
		"publishNotReadyAddresses":          {"its clients want pods that are not ready", shown(no, no, time.Hour, time.Hour), []*discoveryv1.EndpointSlice{of("web", on, off)}, "not True yet", "", 0},
		"another manager's clock is ahead":  {"kubelet has had the time all the same", shown(no, no, -time.Hour, time.Hour), neither, "not True yet", "", 3 * time.Second},
		"another manager's clock is behind": {"the condition is new all the same", shown(no, no, time.Hour, 2*time.Hour), neither, "not True yet", "may still follow", time.Second},
		"kubelet's clock is ahead":          {"it was not ready before", shown(no, no, 0, -30*time.Minute), neither, "not True yet", "may still follow", time.Second},
		"no Service, or no controller":      {"the controller may be down: it is not known whether a person has to make a Service", shown(yes, yes, time.Minute, time.Minute), nil, "if no Service selects it, create one", inRotation + "is not False yet", 0},
		"no gate, slices lag":               {"clients are given it once the controller has followed", without(shown("", yes, 0, time.Hour)), neither, "lacks the readiness gate", "it is ready, and it lacks the readiness gate", 0},
		"no gate, no slices":                {"a Service may select it, and the controller be down", without(shown("", yes, 0, time.Hour)), nil, "lacks the readiness gate", "it is ready, and it lacks the readiness gate", 0},
		"no gate, not ready, not followed":  {"the controller has to follow", without(shown("", no, 0, 0)), both, "lacks the readiness gate", "clients of Service admin, web are given", 0},
	}, func(t *testing.T, tc row) {
		v := view{slices: tc.slices, uid: "1", now: now}
		if tc.pod != nil {
			v.pod = lifecycle.PodOf(tc.pod)
		}
		since := conditionOf(v.pod, lifecycle.ConditionInRotation).LastTransitionTime
		v.shownFor = cmp.Or(tc.seen, now.Sub(since.Time))
		for direction, c := range map[string]struct {
			err     error
			missing string
		}{"in": {v.in(), tc.in}, "out": {v.out(), tc.out}} {
			if c.missing == "" && c.err != nil || c.missing != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.missing)) {
				t.Errorf("%s: got %v, want %q\nreason: %s", direction, c.err, c.missing, tc.reason)
			}
			person := strings.Contains(c.missing, "gate") || strings.Contains(c.missing, "are given")
			if c.err != nil && ((registry.CodeOf(c.err) == registry.CodeTerminal) != person || (registry.CodeOf(c.err) == registry.CodeNotYet) == person) {
				t.Errorf("%s: %v is terminal: %t, want %t\nreason: %s", direction, c.err, !person, person, tc.reason)
			}
		}
	})
}
