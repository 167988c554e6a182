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
	select {
	case r.lost <- struct{}{}:
	default: // somebody is on the way already
	}
}

// lostInstances looks again at the pods whose instances a registry has lost.
func (r *PodReconciler) lostInstances(ctx context.Context, q requestQueue) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.lost:
				for _, req := range r.ledger.takeLosers() {
					q.Add(req)
				}
			}
		}
	}()
	return nil
}

// hold notes an acknowledgement.
func (l *ledger) hold(p *page, s step, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.held == nil {
		p.held = map[lifecycle.Recorded]held{}
	}
	p.held[s.key()] = held{instance: s.instance, want: s.want, since: now}
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

// letGo is called before the instance is taken away, since nothing may keep it alive from then on.
func (l *ledger) letGo(p *page, in lifecycle.Recorded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(p.held, in)
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
	if p == nil {
		return false
	}
	h, found := p.held[t.key()]
	if !found || h.since.After(asked) {
		return false
	}
	delete(p.held, t.key())
	if h.want != lifecycle.InService {
		return false
	}
	p.missing = append(p.missing, t.key())
	l.losers = append(l.losers, Request{
		NamespacedName: types.NamespacedName{Namespace: t.instance.Namespace, Name: t.instance.Pod}, UID: types.UID(t.instance.UID),
	})
	return true
}

func (l *ledger) takeLosers() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	losers := l.losers
	l.losers = nil
	return losers
}

// reread takes back the acknowledgements of what the registries have lost.
func (p *page) reread() {
	for _, in := range p.missing {
		if c := p.calls[in]; c != nil && c.want == lifecycle.InService {
			c.acknowledged = false
		}
	}
	p.missing = nil
}
