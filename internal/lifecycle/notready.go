package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
)

// AwaitsReadiness reports whether only readiness keeps the pod out of rotation. In row 10 its record tells whether it is out.
func (in Input) AwaitsReadiness(d Decision) bool {
	switch d.Row {
	case RowUpdatedNotReady, RowPreparingNormalUnfit:
		return true
	case RowNormalNotReady:
		here := func(at Key) bool { return at.IsAt(in.Pod) }
		return in.Record.Want != InService || !slices.ContainsFunc(in.Record.Instances, here)
	default:
		return false
	}
}

// UnreadySince returns when the pod turned not ready; zero if unknown.
func UnreadySince(pod *Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// NotUpdatedBecause returns what keeps a pod in Updating.
func NotUpdatedBecause(pod *Pod) string {
	return cmp.Or(pod.Status.NotReady, "the pod is ready, and OpenKruise has not finished its update in place")
}

// notReadyBecause returns what keeps the pod from being ready, unless it is only its own gate.
func notReadyBecause(pod *corev1.Pod) string {
	return registry.Excerpt(cmp.Or(pod.Status.Message, unscheduled(pod), unreadyContainers(pod), shutGates(pod), readyAlone(pod)))
}

func unscheduled(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return ""
	}
	return "the pod is not scheduled" + details(conditionOf(pod, corev1.PodScheduled))
}

func unreadyContainers(pod *corev1.Pod) string {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	if len(statuses) == 0 {
		return "no container has been started on node " + pod.Spec.NodeName
	}
	var all []string
	for _, s := range statuses {
		awaitsOthers := s.State.Waiting != nil && s.State.Waiting.Reason == "PodInitializing"
		if !s.Ready && (!awaitsOthers || len(all) == 0) {
			all = append(all, "container "+s.Name+unreadyContainer(&s, containerOf(pod, s.Name)))
		}
	}
	return strings.Join(all, "; ")
}

func unreadyContainer(s *corev1.ContainerStatus, spec corev1.Container) string {
	waiting, ended, last := s.State.Waiting, s.State.Terminated, s.LastTerminationState.Terminated
	switch {
	case waiting != nil && waiting.Reason == "CrashLoopBackOff" && last != nil: // whose message has only the pod's name and the delay
		return ": CrashLoopBackOff, last " + exit(last)
	case waiting != nil:
		return joined(cmp.Or(waiting.Reason, "waiting to start"), waiting.Message)
	case ended != nil:
		return ": " + exit(ended)
	case s.State.Running == nil:
		return ": waiting to start"
	case spec.StartupProbe != nil && (s.Started == nil || !*s.Started):
		return " is running, and its startup probe" + probed(spec.StartupProbe) + " has not succeeded"
	case spec.ReadinessProbe != nil:
		return " is running, and its readiness probe" + probed(spec.ReadinessProbe) + " fails"
	default:
		return " is running, and not ready"
	}
}

func exit(s *corev1.ContainerStateTerminated) string {
	return fmt.Sprintf("exit code %d", s.ExitCode) + joined(s.Reason, s.Message)
}

// probed shows no command: it may hold a secret.
func probed(p *corev1.Probe) string {
	switch {
	case p.HTTPGet != nil:
		return fmt.Sprintf(" (GET :%s/%s)", p.HTTPGet.Port.String(), strings.TrimPrefix(p.HTTPGet.Path, "/"))
	case p.TCPSocket != nil:
		return fmt.Sprintf(" (TCP :%s)", p.TCPSocket.Port.String())
	case p.GRPC != nil:
		return fmt.Sprintf(" (gRPC :%d)", p.GRPC.Port)
	default:
		return " (a command)"
	}
}

func shutGates(pod *corev1.Pod) string {
	var all []string
	for _, gate := range pod.Spec.ReadinessGates {
		if gate.ConditionType != ConditionInRotation && !isTrue(conditionOf(pod, gate.ConditionType)) {
			all = append(all, "readiness gate "+string(gate.ConditionType)+shutGate(conditionOf(pod, gate.ConditionType)))
		}
	}
	return strings.Join(all, "; ")
}

func shutGate(c *corev1.PodCondition) string {
	switch {
	case c == nil:
		return " is not set"
	case c.Type == appspub.InPlaceUpdateReady: // its message tells a person less
		return ": OpenKruise has not seen the updated containers run"
	case c.Type == appspub.KruisePodReadyConditionType:
		return ": OpenKruise holds the pod not ready, for a hook with markPodNotReady or a restart of containers"
	default:
		return " is " + string(c.Status) + details(c)
	}
}

func readyAlone(pod *corev1.Pod) string {
	return "its containers and readiness gates are ready, and its condition Ready is not True" +
		details(conditionOf(pod, corev1.PodReady)) + "; node " + pod.Spec.NodeName + " may be lost"
}

func details(c *corev1.PodCondition) string {
	if c == nil {
		return ""
	}
	return joined(c.Reason, c.Message)
}

// joined("a", "", "b") is ": a: b".
func joined(texts ...string) (all string) {
	for _, text := range texts {
		if text != "" {
			all += ": " + text
		}
	}
	return all
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

func isTrue(c *corev1.PodCondition) bool { return c != nil && c.Status == corev1.ConditionTrue }

func containerOf(pod *corev1.Pod, name string) corev1.Container {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == name {
			return c
		}
	}
	return corev1.Container{}
}
