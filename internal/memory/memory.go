// Package memory is what the reconciler remembers of pods between visits.
package memory

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Pods are safe for concurrent use.
type Pods struct {
	mu   sync.Mutex
	pods map[types.UID]*Pod
	// tellers are the pods that had the last Event of their workload, while they wait.
	tellers  map[types.UID]*Pod
	rollouts rollouts
	swept    time.Time
}

// New returns empty Pods.
func New() *Pods {
	return &Pods{pods: map[types.UID]*Pod{}, tellers: map[types.UID]*Pod{}, rollouts: rollouts{}}
}

// Pod is for its reconciler only: exported fields (except Pod), Shown, Announced, Announce, BehindFor, FailsFor, Read and
// ReadOut.
type Pod struct {
	Pod lifecycle.PodID
	// Written is our last write's resource version, for a cache that is behind.
	Written string
	// SkipRefused is the last refusal with an Event.
	SkipRefused string
	// Brought is the timestamp of the last move with an Event HandlerInTemplate.
	Brought string
	// Lingers: the pod lost the label that the cache selects by, so no event shows its end.
	Lingers bool
	// Unadopted is set while the CloneSet that made the pod selects it without owning it.
	Unadopted    *lifecycle.Selection
	OutRead, out time.Time
	// Drain is since when the drain has run that is in the history.
	Drain time.Time
	// ahead is a time by another's clock that was in the future when it was first read, at aheadRead.
	ahead, aheadRead time.Time
	// Since when the cache lacks our last write, and since when all writes fail.
	behind  time.Time
	failing time.Time

	// Under the lock of [Pods]: the blocker, what was decided under, the workload of which it is the teller, and since when.
	shown  *waiting.Blocker
	of     string // the workload's name, while the pod waits
	under  lifecycle.Circumstances
	told   types.UID
	toldAt time.Time

	// events bounds the Events on the pod; nil before the first.
	events *rate.Limiter

	// mu is for calls in parallel.
	mu sync.Mutex
	// NoteReturned and NoteSeveral had their Event.
	returned bool
	several  bool
	// announced had the last Event, unless one has reported since that it passed.
	announced *waiting.Blocker
}

// Of returns the pod's note, or a new one.
func (n *Pods) Of(pod lifecycle.PodID) *Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.pods[pod.UID]
	if one == nil {
		one = &Pod{Pod: pod}
		n.pods[pod.UID] = one
	}
	return one
}

// Forget drops the pod's note, if any.
func (n *Pods) Forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if one := n.pods[uid]; one != nil {
		n.tellsNoMore(one)
	}
	delete(n.pods, uid)
}

// Len is the number of notes.
func (n *Pods) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pods)
}

// Waits returns every pod that waits.
func (n *Pods) Waits() (waits []metrics.Wait) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.pods {
		if b := one.shown; b != nil {
			waits = append(waits, metrics.Wait{
				Hook: string(b.Hook), Reason: string(b.Reason), Message: b.Message,
				Warning:   !b.Said.IsZero() && b.Reason.Event() == corev1.EventTypeWarning,
				Namespace: one.Pod.Namespace, Pod: one.Pod.Name, UID: string(one.Pod.UID), Workload: one.of, Since: b.Since,
			})
		}
	}
	return waits
}

// Circumstances returns those under which it was last decided about each pod, without pods that have none.
func (n *Pods) Circumstances() map[lifecycle.PodID]lifecycle.Circumstances {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[lifecycle.PodID]lifecycle.Circumstances{}
	for _, one := range n.pods {
		if one.under != (lifecycle.Circumstances{}) {
			all[one.Pod] = one.under
		}
	}
	return all
}

// Show notes why the pod of the workload waits, and under which circumstances that was decided.
func (n *Pods) Show(of *Pod, workload string, now waiting.Blocker, under lifecycle.Circumstances) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of.under = under
	waits := now.Hook != "" || now.Reason.OfApp() // which will wait
	if now.Said.IsZero() || !waits || of.shown != nil && of.shown.Hook != now.Hook {
		n.tellsNoMore(of)
	}
	of.shown, of.of = nil, ""
	if now.Reason != "" {
		shown := now // on the heap only if a pod waits
		of.shown, of.of = &shown, workload
	}
}

// ClaimEvent reports whether the workload gets an Event: one for all pods per [reason.EventRepeat], unless this one continues.
func (n *Pods) ClaimEvent(of *Pod, workload types.UID, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := n.tellers[workload]; last != nil {
		if now.Before(last.toldAt.Add(reason.EventRepeat)) {
			return false
		}
		n.tellsNoMore(last)
	}
	n.tellsNoMore(of)
	n.tellers[workload], of.told, of.toldAt = of, workload, now
	return true
}

// tellsNoMore needs the lock.
func (n *Pods) tellsNoMore(one *Pod) {
	if one.told != "" {
		delete(n.tellers, one.told)
	}
	one.told = ""
}

// Shown returns why the pod waits.
func (n *Pod) Shown() waiting.Blocker {
	if n.shown == nil {
		return waiting.Blocker{}
	}
	return *n.shown
}

// Announced returns what the last Event reported, unless that has passed.
func (n *Pod) Announced() waiting.Blocker {
	if n.announced == nil {
		return waiting.Blocker{}
	}
	return *n.announced
}

// Announce notes what an Event reported, and with no reason that it passed.
func (n *Pod) Announce(now waiting.Blocker) {
	n.announced = nil
	if now.Reason != "" {
		announced := now // on the heap only if there is an Event
		n.announced = &announced
	}
}

const (
	// EventBurst are the Events that a pod has in a row: whoever writes it can make it wait and continue again and again.
	EventBurst = 10
	// EventPause is how long each Event after these waits for the one before.
	EventPause = 10 * time.Second
)

// MayTell reports whether the pod may have an Event now.
func (n *Pod) MayTell(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.events == nil {
		n.events = rate.NewLimiter(rate.Every(EventPause), EventBurst)
	}
	return n.events.AllowN(now, 1)
}

// BehindFor returns how long the cache has lacked our last write.
func (n *Pod) BehindFor(behind bool, now time.Time) time.Duration {
	switch {
	case !behind:
		n.behind = time.Time{}
		return 0
	case n.behind.IsZero():
		n.behind = now
	}
	return now.Sub(n.behind)
}

// FailsFor returns how long all writes of the pod have failed.
func (n *Pod) FailsFor(err error, now time.Time) time.Duration {
	if err == nil {
		n.failing = time.Time{}
		return 0
	}
	if n.failing.IsZero() {
		n.failing = now
	}
	return now.Sub(n.failing)
}

// Read returns a time that another's clock has noted of something that is past, such as OpenKruise's of the pod's last move: what is in the
// future was not later than when it was first read here.
func (n *Pod) Read(noted, now time.Time) time.Time {
	switch {
	case noted.Equal(n.ahead):
	case !noted.After(now):
		return noted
	default:
		n.ahead, n.aheadRead = noted, now
	}
	return n.aheadRead
}

// ReadOut notes the record's OutSince, and when it was first read.
func (n *Pod) ReadOut(since *time.Time, now time.Time) {
	if since != nil && !since.Equal(n.out) {
		n.out, n.OutRead = *since, now
	}
}

// NoteSeveral reports whether the application's several entries are new.
func (n *Pod) NoteSeveral() (first bool) { return n.once(&n.several) }

// NoteReturned reports whether it is new, since [Pod.NoteJoined], that its entry is back in rotation.
func (n *Pod) NoteReturned() (first bool) { return n.once(&n.returned) }

func (n *Pod) once(came *bool) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first, *came = !*came, true
	return first
}

// NoteJoined notes that the pod may be in rotation.
func (n *Pod) NoteJoined() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.returned = false
}
