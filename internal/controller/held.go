package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// held is an instance that a registry has acknowledged to know, and that nobody has begun to take away.
type held struct {
	instance registry.Instance
	want     lifecycle.Want
	since    time.Time
	// unlike is how the registry listed it last where that differs in what is for clients.
	unlike *registry.Instance
}

// Held returns what a registry has acknowledged to know of our pods: what has to be kept alive where entries expire. It
// may be called at any time.
func (r *PodReconciler) Held(name string) []registry.Instance { return r.ledger.heldIn(name) }

// Lost notes that a registry has no entry for an instance, which was asked for at that time. What was acknowledged since
// says otherwise and counts. An instance that is to be in service is registered again; one that is out of service needs
// no entry. It may be called at any time.
func (r *PodReconciler) Lost(name string, in registry.Instance, asked time.Time) {
	if !r.ledger.lost(target{registry: name, instance: in}, asked) {
		return
	}
	r.wake()
}

// wake has the pods looked at that are in doubt.
func (r *PodReconciler) wake() {
	select {
	case r.lost <- struct{}{}:
	default: // somebody is on the way already
	}
}

// lostInstances looks again at the pods whose instances a registry has lost.
func (r *PodReconciler) lostInstances(ctx context.Context, q requestQueue) error {
	return whenever(ctx, r.lost, func() { r.enqueueDoubted(q) })
}

// enqueueDoubted puts back what is missing before it looks at what differs.
func (r *PodReconciler) enqueueDoubted(q requestQueue) {
	losers, doubtful := r.ledger.takeDoubted()
	for _, req := range losers {
		q.Add(req)
	}
	for _, req := range doubtful {
		enqueueLast(q, req)
	}
}

// hold notes an acknowledgement.
func (l *ledger) hold(p *page, s step, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(p.left, s.key())
	if p.held == nil {
		p.held = map[lifecycle.Recorded]held{}
	}
	h := held{instance: s.instance, want: s.want, since: now}
	if before := p.held[s.key()]; before.instance.Equal(s.instance) {
		h.unlike = before.unlike
	}
	p.held[s.key()] = h
}

// leave notes the acknowledgement that an instance is absent.
func (l *ledger) leave(p *page, in lifecycle.Recorded, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.left[in] = now
}

// recall has what the record names kept alive from the first look at the pod, and not only from the first call on: none may
// come for as long as the pod stays as it is. Where the record lies, the registry has no such entry, or one that does no harm.
func (r *PodReconciler) recall(seen *observation) {
	record := seen.input.Record
	if seen.page.recalled {
		return
	}
	seen.page.recalled = true
	if record.Want == lifecycle.Absent {
		return
	}
	for _, in := range record.Instances {
		t := targetOf(seen.settings.Cluster, seen.pod(), in)
		if i := slices.IndexFunc(seen.targets, func(t target) bool { return t.key() == in }); i >= 0 {
			t = seen.targets[i] // with its weight and metadata
		}
		r.ledger.hold(seen.page, step{target: t, want: record.Want}, r.clock.Now())
	}
}

// letGo is called before the instance is taken away, since nothing may keep it alive from then on. What nobody keeps alive, or
// misses, counts for acknowledged no more: should the pod stay after all, it is registered again.
func (r *PodReconciler) letGo(seen *observation, in lifecycle.Recorded) {
	r.ledger.letGo(seen.page, in)
	if c := seen.page.calls[in]; c != nil {
		c.acknowledged = false
	}
}

func (l *ledger) letGo(p *page, in lifecycle.Recorded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(p.held, in)
	if p.left == nil {
		p.left = map[lifecycle.Recorded]time.Time{}
	}
	p.left[in] = time.Time{}
}

func (l *ledger) heldIn(name string) []registry.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	var instances []registry.Instance
	for _, p := range l.pages {
		for in, h := range p.held {
			if in.Registry == name {
				instances = append(instances, h.instance)
			}
		}
	}
	return instances
}

// lost returns whether the pod has to be looked at.
func (l *ledger) lost(t target, asked time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pages[types.UID(t.instance.UID)]
	return p != nil && l.lose(p, types.UID(t.instance.UID), t.key(), asked)
}

// lose is lost for a caller that holds the lock.
func (l *ledger) lose(p *page, uid types.UID, in lifecycle.Recorded, asked time.Time) bool {
	h, known := p.held[in]
	if !known || h.since.After(asked) {
		return false
	}
	delete(p.held, in)
	p.entries = slices.DeleteFunc(p.entries, func(f found) bool { return f.key() == in && !f.asOf.After(asked) })
	if h.want != lifecycle.InService {
		return false
	}
	p.missing = append(p.missing, in)
	l.losers = append(l.losers, Request{NamespacedName: p.pod, UID: uid})
	return true
}

func (l *ledger) takeDoubted() (losers, doubtful []Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	losers, doubtful = l.losers, l.doubtful
	l.losers, l.doubtful = nil, nil
	return losers, doubtful
}

// reread takes back the acknowledgements of what the registries have lost, or have otherwise, and what an older list said.
func (p *page) reread() {
	for _, in := range p.missing {
		c := p.calls[in]
		if c == nil {
			continue
		}
		c.listed = nil
		if c.want == lifecycle.InService {
			c.acknowledged = false
		}
	}
	for _, f := range p.entries {
		p.learn(f)
	}
	p.missing, p.entries = nil, nil
}
