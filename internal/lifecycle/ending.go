package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationEndsAt announces when something ends, in RFC 3339: on a node for whoever knows, on a pod by the eviction webhook.
const AnnotationEndsAt = "rollcall.dev/ends-at"

const (
	// stopTime is left to a drained pod on a node with a deadline: what evicts it tries again every 10 s, and then its containers stop.
	stopTime = 20 * time.Second
	// outTime is how long the registries have to acknowledge that a pod is out, before its drain.
	outTime = 5 * time.Second
	// endLapses is how long after its time an announced end counts. One that has not come by then was announced wrongly.
	endLapses = 5 * time.Minute
)

// The taints that tell of the end of a node's pods. Others, such as those of the cluster autoscaler and of Karpenter, announce a
// drain, which has no deadline and may be given up.
const (
	// taintSpot is set when EC2 has announced that it reclaims the instance. EC2 does so two minutes before.
	// https://github.com/aws/aws-node-termination-handler/blob/main/pkg/node/node.go
	taintSpot  = "aws-node-termination-handler/spot-itn"
	spotNotice = 2 * time.Minute
	// taintOff is set by the cloud's controller on a node whose machine is off, and a person says the same by the other.
	taintOff = "node.cloudprovider.kubernetes.io/shutdown"
)

// NodeShutsDown is in the message of a node's Ready condition while kubelet ends the pods since the machine is shut down. Their
// containers have got SIGTERM, or their preStop hooks run, and nothing on the pods tells.
// https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go#L284
const NodeShutsDown = "node is shutting down"

// End is by when a pod must be out of rotation and drained, because it ends for certain then, and how that is known. Without Why
// nothing is known, and without a time the end has begun.
type End struct {
	At  time.Time
	Why string
}

// EndOf returns the first end that is announced of the pod or of its node, which may be nil.
func EndOf(pod *corev1.Pod, node *corev1.Node, now time.Time) End {
	var ends []End
	if IsTrue(pod, corev1.DisruptionTarget) {
		ends = append(ends, End{Why: "Kubernetes is about to delete it (condition DisruptionTarget)"})
	}
	if at, announced := endsAt(pod.Annotations); announced {
		ends = append(ends, End{At: at, Why: "its eviction has reached its limit and is let through at " + at.Format(time.RFC3339)})
	}
	if node != nil {
		ends = append(ends, endsOfNode(node)...)
	}
	ends = slices.DeleteFunc(ends, func(e End) bool { return !e.At.IsZero() && !now.Before(e.At.Add(endLapses)) })
	if len(ends) == 0 {
		return End{}
	}
	return slices.MinFunc(ends, func(a, b End) int { return a.At.Compare(b.At) })
}

func endsOfNode(node *corev1.Node) (ends []End) {
	if ready := nodeReady(node); ready.Status == corev1.ConditionFalse && strings.Contains(ready.Message, NodeShutsDown) {
		ends = append(ends, End{Why: "its node is shutting down"})
	}
	for _, t := range node.Spec.Taints {
		switch t.Key {
		case corev1.TaintNodeOutOfService, taintOff:
			ends = append(ends, End{Why: fmt.Sprintf("its node is off (taint %s)", t.Key)})
		case taintSpot:
			if t.TimeAdded != nil {
				ends = append(ends, endWithNode(t.TimeAdded.Add(spotNotice), "taint "+t.Key))
			}
		}
	}
	if at, announced := endsAt(node.Annotations); announced {
		ends = append(ends, endWithNode(at, "annotation "+AnnotationEndsAt))
	}
	return ends
}

func endsAt(annotations map[string]string) (at time.Time, announced bool) {
	text, announced := annotations[AnnotationEndsAt]
	if !announced {
		return time.Time{}, false // an error costs memory
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// UnreadableEnd says what to write in place of an announced end of the pod or of its node, which may be nil, that is no time; empty if
// there is none.
func UnreadableEnd(pod *corev1.Pod, node *corev1.Node) string {
	unreadable := func(of string, annotations map[string]string, remedy string) string {
		text, written := annotations[AnnotationEndsAt]
		if _, read := endsAt(annotations); read || !written {
			return ""
		}
		return fmt.Sprintf("annotation %s of %s is %.40q, which announces nothing: %s", AnnotationEndsAt, of, text, remedy)
	}
	if why := unreadable("the pod", pod.Annotations, "remove it, since only Rollcall writes it"); why != "" || node == nil {
		return why
	}
	return unreadable("node "+node.Name, node.Annotations, "set it to a time such as 2026-11-27T12:00:00Z, or remove it")
}

func endWithNode(at time.Time, by string) End {
	return End{At: at.Add(-stopTime), Why: fmt.Sprintf("its node ends at %s (%s)", at.Format(time.RFC3339), by)}
}

// EndOnceDrained is the first end for which a pod with the drain can be out of rotation and drained.
func EndOnceDrained(now time.Time, drain time.Duration) time.Time { return now.Add(drain + outTime) }

// Begins is when a pod with the drain has to leave the rotation.
func (e End) Begins(drain time.Duration) time.Time { return e.At.Add(-drain - outTime) }

// Ending returns why a pod with the drain has to be out of rotation now, if it has, and after how long that changes; never where
// that is zero.
func (e End) Ending(now time.Time, drain time.Duration) (why string, changes time.Duration) {
	switch {
	case e.Why == "", e.At.IsZero():
		return e.Why, 0
	case now.Before(e.Begins(drain)):
		return "", e.Begins(drain).Sub(now)
	default:
		return e.Why, e.At.Add(endLapses).Sub(now)
	}
}

// OutForItsEnd reports whether the pod would wait for nothing to be in rotation but that it ends.
func (in Input) OutForItsEnd(d Decision) bool {
	return in.Ending != "" && (d.Row == RowUpdatedNotReady || d.Row == RowPreparingNormalUnfit || d.Row == RowNormalNotReady)
}

// EndTaints returns of a node's taints those that [EndOf] reads, each dated: by firstSeen, unless it has a date.
func EndTaints(taints []corev1.Taint, firstSeen func() metav1.Time) (ends []corev1.Taint) {
	for _, t := range taints {
		if t.Key != taintSpot && t.Key != taintOff && t.Key != corev1.TaintNodeOutOfService {
			continue
		}
		if t.TimeAdded == nil {
			t.TimeAdded = new(firstSeen())
		}
		ends = append(ends, corev1.Taint{Key: t.Key, TimeAdded: t.TimeAdded})
	}
	return ends
}

// NodeLost reports whether the node, which may be nil, is not Ready: Kubernetes then has its pods not Ready either, but for those
// that were so before.
func NodeLost(node *corev1.Node) bool {
	return node != nil && nodeReady(node).Status != corev1.ConditionTrue
}

// nodeReady returns the node's Ready condition, the zero value where it has none.
func nodeReady(node *corev1.Node) corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return node.Status.Conditions[i]
}
