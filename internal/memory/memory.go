// Package memory is what the pod reconciler remembers of a pod from one visit to the next, and why it waits. What this process knows of
// the registries is in package tracker.
package memory

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Pods is what is remembered of all pods. They are safe for concurrent use.
type Pods struct {
	mu   sync.Mutex
	pods map[types.UID]*Pod
}

// New returns empty Pods.
func New() *Pods { return &Pods{pods: map[types.UID]*Pod{}} }

// Pod holds what the reconciler remembers of one pod. Only that pod's reconciler uses the exported fields, but for Pod, which
// never changes.
type Pod struct {
	Pod lifecycle.PodID
	// Written is the resource version of our last write. A cache that is behind it has not seen our own change.
	Written string
	// SkipRefused is why the pod's annotation to skip a hook was last refused: an Event of it came.
	SkipRefused string
	// Brought is when OpenKruise made the move of which an Event said that an update may have brought a handler along.
	Brought string
	// Lingers: the pod ends and has lost the label that the cache selects by, so no event tells whether it was freed.
	Lingers bool
	// OutRead is when the pod's record was first read that has it out since out.
	OutRead, out time.Time
	// behind is since when the cache has not had our last write; zero while it has it.
	behind time.Time
	// failing is since when each write of the pod has failed; zero where the last one passed.
	failing time.Time

	// shown is why the pod waits, nil where it does not, told the workload that has an Event since, and toldAt when that came. They
	// are under the lock of [Pods].
	shown  *waiting.Blocker
	told   types.UID
	toldAt time.Time

	// mu is for what follows: several calls may be made for a pod at once.
	mu sync.Mutex
	// returned: an Event came of the application's entry that came back while the pod had to be out.
	returned bool
	// several: an Event came of several entries of the pod's application.
	several bool
}

// Of returns the pod's note.
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

// Forget returns the note of a pod that is gone for good, nil where there is none.
func (n *Pods) Forget(uid types.UID) (forgotten *Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	forgotten = n.pods[uid]
	delete(n.pods, uid)
	return forgotten
}

// Len returns how many pods have a note.
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
				Hook: string(b.Hook), Reason: string(b.Reason), Message: b.Message, Warning: !b.Said.IsZero(),
				Namespace: one.Pod.Namespace, Pod: one.Pod.Name, UID: string(one.Pod.UID), Since: b.Since,
			})
		}
	}
	return waits
}

// Show notes why the pod waits from now on.
func (n *Pods) Show(of *Pod, now waiting.Blocker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	waits := now.Hook != "" || now.Reason.OfApp() // which will wait
	if now.Said.IsZero() || !waits || of.shown != nil && of.shown.Hook != now.Hook {
		of.told = ""
	}
	if of.shown = nil; now.Reason != "" {
		shown := now // on the heap only where a pod waits
		of.shown = &shown
	}
}

// ClaimEvent reports whether the workload gets an Event since the pod waits: one for all of its pods in each [reason.EventRepeat], until
// this one goes on.
func (n *Pods) ClaimEvent(of *Pod, workload types.UID, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.pods {
		if one.told == workload && now.Before(one.toldAt.Add(reason.EventRepeat)) {
			return false
		}
	}
	of.told, of.toldAt = workload, now
	return true
}

// Shown returns why the pod waits. Only its reconciler, which alone changes it, may ask.
func (n *Pod) Shown() waiting.Blocker {
	if n.shown == nil {
		return waiting.Blocker{}
	}
	return *n.shown
}

// BehindFor notes whether the cache is behind our last write, and returns for how long it has been. Only its reconciler may call it.
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

// FailsFor notes how the last write of the pod ended, and returns for how long each one has failed. Only its reconciler may call
// it.
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

// ReadOut notes that the record has the pod out since then; nil where it does not. Only its reconciler may call it.
func (n *Pod) ReadOut(since *time.Time, now time.Time) {
	if since != nil && !since.Equal(n.out) {
		n.out, n.OutRead = *since, now
	}
}

// NoteSeveral notes that the pod's application has several entries, and reports whether that is new.
func (n *Pod) NoteSeveral() (first bool) { return n.once(&n.several) }

// NoteReturned notes that the application's entry came back into rotation, and reports whether that is new since [Pod.NoteJoined].
func (n *Pod) NoteReturned() (first bool) { return n.once(&n.returned) }

// once notes that an Event came, and reports whether it is the first.
func (n *Pod) once(came *bool) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first, *came = !*came, true
	return first
}

// NoteJoined notes that the pod may be in rotation again.
func (n *Pod) NoteJoined() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.returned = false
}
