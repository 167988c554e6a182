package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationEndsAt is an RFC 3339 time: on nodes by anyone, on pods by the eviction webhook. See [Eviction].
const AnnotationEndsAt = "rollcall.dev/ends-at"

// notBefore is before the time in [AnnotationEndsAt] of an evicted pod until its end is certain.
const notBefore = "not before "

const (
	// stopTime is left before a node's deadline: an eviction is retried every 10 s, then containers stop.
	stopTime = 20 * time.Second
	// outTime is for registries to acknowledge, before the drain.
	outTime = 5 * time.Second
	// endLapses is how long an end that did not come still counts.
	endLapses = 5 * time.Minute
)

// Taints of a certain end. A drain by the cluster autoscaler or Karpenter has no deadline, and can be given up.
const (
	// taintSpot: EC2 reclaims the instance two minutes after the notice.
	// https://github.com/aws/aws-node-termination-handler/blob/main/pkg/node/node.go
	taintSpot  = "aws-node-termination-handler/spot-itn"
	spotNotice = 2 * time.Minute
	// taintOff: the machine is off. A person sets [corev1.TaintNodeOutOfService] instead.
	taintOff = "node.cloudprovider.kubernetes.io/shutdown"
)

// NodeShutsDown is in the node's Ready message once its containers have SIGTERM or run preStop hooks. The pods don't show it.
// https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go#L284
const NodeShutsDown = "node is shutting down"

// End is when a pod must be out and drained. Without a Why there is none; without an At it has begun.
type End struct {
	At  time.Time
	Why string
	// begun: the pod must be out as soon as that is read, whatever the clock of the manager that wrote it.
	begun bool
}

// EndOf returns the first announced end of the pod or its node (may be nil).
func EndOf(pod *Pod, node *Node, now time.Time) End {
	var ends []End
	if IsTrue(pod, corev1.DisruptionTarget) {
		ends = append(ends, End{Why: "Kubernetes is about to delete it (condition DisruptionTarget)"})
	}
	if at, announced, _ := Eviction(pod); announced {
		ends = append(ends, End{At: at, begun: true, Why: "its eviction has reached its limit and is let through at " + at.Format(time.RFC3339)})
	}
	if node != nil {
		ends = append(ends, node.ends()...)
	}
	ends = slices.DeleteFunc(ends, func(e End) bool { return !e.At.IsZero() && !now.Before(e.At.Add(endLapses)) })
	if len(ends) == 0 {
		return End{}
	}
	first := slices.MinFunc(ends, func(a, b End) int { return a.At.Compare(b.At) })
	first.begun = slices.ContainsFunc(ends, func(e End) bool { return e.begun })
	return first
}

// NotBefore is the value of [AnnotationEndsAt] on a pod that is evicted, and whose eviction may be let through at that time.
func NotBefore(at time.Time) string { return notBefore + at.UTC().Format(time.RFC3339) }

// Eviction returns before when the eviction of the pod is not let through, if it is evicted, and whether it is let through then.
func Eviction(pod *Pod) (at time.Time, announced, evicted bool) {
	text, evicted := pod.Annotations[AnnotationEndsAt]
	if !evicted {
		return time.Time{}, false, false // an error costs memory
	}
	text, waits := strings.CutPrefix(text, notBefore)
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil && !waits, err == nil
}

// UnreadableEnd returns the remedy for an [AnnotationEndsAt] that is not a time.
func UnreadableEnd(pod *Pod, node *Node) string {
	const unreadable = "annotation %s of %s is %.40q, which is not a time: %s"
	if text, written := pod.Annotations[AnnotationEndsAt]; written {
		if _, _, evicted := Eviction(pod); !evicted {
			return fmt.Sprintf(unreadable, AnnotationEndsAt, "the pod", text, "remove it, since only Rollcall writes it")
		}
	}
	if node == nil || node.EndsAt == nil {
		return ""
	}
	if _, announced := node.endsAt(); announced {
		return ""
	}
	return fmt.Sprintf(unreadable, AnnotationEndsAt, "node "+node.Name, *node.EndsAt,
		"set it to a time such as 2026-11-27T12:00:00Z, or remove it")
}

func endWithNode(at time.Time, by string) End {
	return End{At: at.Add(-stopTime), Why: fmt.Sprintf("its node ends at %s (%s)", at.Format(time.RFC3339), by)}
}

// EndOnceDrained returns the first end with time to drain: now 10:00 and drain 30s give 10:00:35.
func EndOnceDrained(now time.Time, drain time.Duration) time.Time { return now.Add(drain + outTime) }

func (e End) begins(drain time.Duration) time.Time { return e.At.Add(-drain - outTime) }

// Ending returns why a pod must be out now, if it must, and how soon that changes, if ever: with At 10:05 and drain 30s, from 10:04:25
// to 10:10.
func (e End) Ending(now time.Time, drain time.Duration) (why string, changes time.Duration) {
	switch {
	case e.Why == "", e.At.IsZero():
		return e.Why, 0
	case now.Before(e.begins(drain)) && !e.begun:
		return "", e.begins(drain).Sub(now)
	default:
		return e.Why, e.At.Add(endLapses).Sub(now)
	}
}

// OutForItsEnd reports whether only its end keeps the pod out.
func (in Input) OutForItsEnd(d Decision) bool {
	return in.Ending != "" && (d.Row == RowUpdatedNotReady || d.Row == RowPreparingNormalUnfit || d.Row == RowNormalNotReady)
}
