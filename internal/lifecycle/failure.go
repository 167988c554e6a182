package lifecycle

import (
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// FailurePolicy is after how long hooks are released unacknowledged; 0 is never. With PreDelete 5m, a pod in PreparingDelete since
// 10:00 is released at 10:05.
type FailurePolicy struct {
	PreDelete, InPlaceUpdate time.Duration
}

// Deadline returns since when a hook waits, and after how long [Decision.Unacknowledged] may be written; 0 is never. It counts from a
// time on the pod, so a restart does not extend it. Without one that can be read, since is in the far future, as by a wrong clock.
func (p FailurePolicy) Deadline(pod *Pod, d Decision) (since time.Time, after time.Duration) {
	if d.Unacknowledged().Empty() {
		return time.Time{}, 0
	}
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.Time, p.PreDelete
	}
	switch at := State(pod); { // and not by the row: containers that have ended wait no less
	case at == appspub.LifecycleStatePreparingDelete && d.Waiting == PreDelete:
		after = p.PreDelete
	case at == appspub.LifecycleStatePreparingUpdate && d.Waiting == InPlaceUpdate:
		after = p.InPlaceUpdate
	}
	since, err := MovedAt(pod)
	if err != nil {
		since = farFuture()
	}
	return since, after
}

func farFuture() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }

// Unacknowledged is what a failure policy or a person can release: not the guard, since the call is still to be made.
func (d Decision) Unacknowledged() Edit {
	if !d.Releases {
		return Edit{}
	}
	return Edit{Clear: without(d.Then.Clear, []Handler{guardHandler()})}
}
