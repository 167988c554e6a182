package lifecycle

import (
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// Peers are the pods of a service that [Counts] accepts.
type Peers struct {
	All, Unready int
}

// Panic reports whether more than threshold percent are not ready: at 50, 2 of 3, but not 1 of 2. At 0 every unready pod is kept, which
// is not a panic.
func (p Peers) Panic(threshold int) bool { return threshold > 0 && p.Unready*100 > threshold*p.All }

// Counts reports whether the pod is among its service's [Peers]. One being created, updated or deleted shows neither fault nor health.
func Counts(pod *Pod) bool {
	return State(pod) == appspub.LifecycleStateNormal && !Ends(pod)
}

// Damped is how long the pod, which turned not ready, is kept in rotation all the same: a missed probe or a restart of kubelet is over
// within seconds. With after 5s, a pod that turned at 10:00:00 leaves at 10:00:05. One of which a container has ended leaves immediately.
func Damped(pod *Pod, after time.Duration, now time.Time) time.Duration {
	since := UnreadySince(pod)
	if after == 0 || since.IsZero() || len(pod.Status.NotRunning) > 0 {
		return 0
	}
	if since.After(now) { // kubelet's clock is ahead
		since = now
	}
	return max(since.Add(after).Sub(now), 0)
}

// HeldNotReady recognizes a rollback from PreparingUpdate to Normal: OpenKruise leaves its readiness gate shut.
func (in Input) HeldNotReady(d Decision) bool {
	return d.Row == RowNormalNotReady && in.Hooks.MarksNotReady && in.Pod.Status.ShutByHook
}
