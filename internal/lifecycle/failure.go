package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// FailurePolicy says which hooks may be released without a registry's acknowledgement, and how long after the pod began
// to wait. The zero value releases none: the pod waits. No policy ever asserts a hook.
type FailurePolicy struct {
	PreDelete, InPlaceUpdate bool
	After                    time.Duration
}

// Deadline returns when [Decision.Unacknowledged] may be written; false where never. It counts from what stands on the pod,
// so a restart does not begin it anew: from Kruise's timestamp, and for a pod that is being deleted from when its
// containers have ended at the latest.
func (p FailurePolicy) Deadline(pod *corev1.Pod, d Decision) (time.Time, bool) {
	if d.Unacknowledged().Empty() {
		return time.Time{}, false
	}
	switch {
	case d.Row == RowGone && p.PreDelete && pod.DeletionTimestamp != nil:
		return pod.DeletionTimestamp.Add(p.After), true
	case d.Row == RowPreparingDelete && p.PreDelete, d.Row == RowPreparingUpdate && p.InPlaceUpdate:
		moved, err := MovedAt(pod)
		return moved.Add(p.After), err == nil
	default:
		return time.Time{}, false
	}
}

// Unacknowledged is what may be released in the decision's row without the registry's acknowledgement, where a failure
// policy or a person says so. It asserts nothing, and is empty where nothing waits for a release. The guard stays,
// because the call to the registry is still to be made.
func (d Decision) Unacknowledged() Edit {
	if !d.Releases {
		return Edit{}
	}
	return Edit{Clear: without(d.Then.Clear, []Handler{guardHandler()})}
}
