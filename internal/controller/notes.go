package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// notes are what the reconciler remembers of pods from one look to the next.
type notes struct {
	mu   sync.Mutex
	pods map[types.UID]*note
}

// note is of one pod. Its reconciler is the only one to use it, but for shown and told, which are under the lock of all notes.
type note struct {
	pod lifecycle.PodID
	// written is the resource version of our last write. A cache that is behind it has not seen our own change.
	written string
	// skipRefused is why the pod's annotation to skip a hook was last refused: an Event of it came.
	skipRefused string
	// lingers: the pod is dying and has lost the label that the cache selects by, so no event tells whether it was freed.
	lingers bool
	// clears are the entries of the application of a pod that is gone, and since when they were taken out after that.
	clears map[lifecycle.Recorded]time.Time
	// returned: an Event came of the application's entry that came back while the pod had to be out.
	returned bool
	// postponed are the changes that a registry told to come back for later.
	postponed map[lifecycle.Recorded]postponement

	shown blocker
	// told is the workload that has an Event since this pod waits.
	told types.UID
}

// postponement is a registry's word when to come back with a change. An event must not bring it sooner.
type postponement struct {
	want    lifecycle.Want
	client  *registryclient.Client
	until   time.Time
	blocker blocker
}

func (n *notes) of(pod lifecycle.PodID) *note {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods == nil {
		n.pods = map[types.UID]*note{}
	}
	one := n.pods[pod.UID]
	if one == nil {
		one = &note{pod: pod}
		n.pods[pod.UID] = one
	}
	return one
}

func (n *notes) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, uid)
}

// shown returns why the pod waited when it was last reported.
func (n *notes) shown(of *note) blocker {
	n.mu.Lock()
	defer n.mu.Unlock()
	return of.shown
}

// show notes why the pod waits.
func (n *notes) show(of *note, now blocker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of.shown = now
	if now.reason.Calm() {
		of.told = ""
	}
}

// tells reports whether the workload gets an Event since the pod waits: one for all of its pods, until this one goes on.
func (n *notes) tells(of *note, workload types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.pods {
		if one.told == workload {
			return false
		}
	}
	of.told = workload
	return true
}

func (n *note) postpone(in lifecycle.Recorded, p postponement) {
	if n.postponed == nil {
		n.postponed = map[lifecycle.Recorded]postponement{}
	}
	n.postponed[in] = p
}

func (n *note) clearsFrom(in lifecycle.Recorded, at time.Time) {
	if n.clears == nil {
		n.clears = map[lifecycle.Recorded]time.Time{}
	}
	n.clears[in] = at
}

// postponedNow returns why the change must not be made yet, by the registry's own word; nothing where it may. What it said of
// another change does not count: a registry that takes no more instances must not keep a deleted pod in. Nor does what it said
// to another client, whose credentials may have been the reason.
func (n *note) postponedNow(c change, client *registryclient.Client, now time.Time) blocker {
	p, postponed := n.postponed[c.Key()]
	if !postponed || p.want != c.want || p.client != client || !now.Before(p.until) {
		return blocker{}
	}
	p.blocker.after = p.until.Sub(now)
	return p.blocker
}
