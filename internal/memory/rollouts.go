package memory

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

const (
	// rolloutBurst are the Events about rollouts that a workload has in a row, and rolloutPause is how long each after these waits.
	rolloutBurst = 4
	rolloutPause = time.Minute
	// rolloutLasts is for how long a rollout is remembered of which no pod is seen.
	rolloutLasts = 24 * time.Hour
)

// rollout is what was told of a workload's update.
type rollout struct {
	revision string
	// begun: its first pod was seen in rotation, and done: all toUpdate were.
	begun, done bool
	toUpdate    int
}

// seen returns what is known after a look, and whether that is news. What was so before the first look is none, so that a new leader
// repeats nothing.
func (r *rollout) seen(now lifecycle.Rollout) (next rollout, news bool) {
	if r == nil {
		return rollout{now.Revision, now.In > 0 || !now.Rolling, now.Done() || !now.Rolling, now.ToUpdate}, false
	}
	next = *r
	if r.revision != now.Revision {
		next = rollout{revision: now.Revision}
	}
	if now.Rolling && now.ToUpdate > next.toUpdate { // a canary continues
		next.done = false
	}
	next.toUpdate = now.ToUpdate
	before := next
	next.begun, next.done = next.begun || now.In > 0, next.done || now.Done()
	return next, next != before
}

// rolling is a rollout in memory.
type rolling struct {
	rollout

	at     time.Time
	events *rate.Limiter
}

// Rolled notes how far a rollout is, and reports whether its workload gets an Event.
func (n *Pods) Rolled(now lifecycle.Rollout, at time.Time) (tell bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.rollouts[now.Workload]
	if one == nil {
		n.forgetRollouts(at)
		first, _ := (*rollout)(nil).seen(now)
		n.rollouts[now.Workload] = &rolling{rollout: first, at: at}
		return false
	}
	one.at = at
	next, news := one.seen(now)
	one.rollout = next
	if !news {
		return false
	}
	if one.events == nil {
		one.events = rate.NewLimiter(rate.Every(rolloutPause), rolloutBurst)
	}
	return one.events.AllowN(at, 1)
}

// forgetRollouts bounds the memory to the workloads of the last day. It is called once for each that is new, and looks once a day.
func (n *Pods) forgetRollouts(at time.Time) {
	if at.Before(n.swept.Add(rolloutLasts)) {
		return
	}
	n.swept = at
	for uid, one := range n.rollouts {
		if at.Sub(one.at) > rolloutLasts {
			delete(n.rollouts, uid)
		}
	}
}

type rollouts map[types.UID]*rolling
