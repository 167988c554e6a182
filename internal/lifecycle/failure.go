package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// FailurePolicy lists hooks to release unacknowledged. With PreDelete and After 5m, a pod in PreparingDelete since 10:00 is released
// at 10:05.
type FailurePolicy struct {
	PreDelete, InPlaceUpdate bool
	After                    time.Duration
}

// Deadline returns when [Decision.Unacknowledged] may be written, if ever. It counts from a time on the pod, so a restart does not
// extend it.
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

// Unacknowledged is what a failure policy or a person can release: not the guard, since the call is still to be made.
func (d Decision) Unacknowledged() Edit {
	if !d.Releases {
		return Edit{}
	}
	return Edit{Clear: without(d.Then.Clear, []Handler{guardHandler()})}
}
