package tracker

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// Pod is a pod's handle for its reconciler.
type Pod struct {
	tracker *Tracker
	pod     *pod
}

func locked[T any](p *Pod, read func() T) T {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return read()
}

// Standing returns one instance.
func (p *Pod) Standing(in lifecycle.Key) Instance {
	return locked(p, func() Instance { i, _ := p.pod.instances.get(in); return i })
}

// Known returns what is known now.
func (p *Pod) Known() Known {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return Known{
		instances: p.pod.instances, born: p.pod.born, shown: p.tracker.lists.shownTo(p.pod), renamed: p.tracker.lists.renamed,
	}
}

// Foreign returns the entries by which clients are given, by the last list, what they reach at the instance's endpoint, under its service,
// at any of the pod's addresses: not its application's own entry, once.
func (p *Pod) Foreign(in lifecycle.Key) []lifecycle.Foreign {
	return locked(p, func() []lifecycle.Foreign { return p.tracker.lists.foreign[in.Registry].around(p.pod, in) })
}

// ForeignNames returns the service names under which such entries have the address and port itself: sorted, with repetitions.
func (p *Pod) ForeignNames(in lifecycle.Key) []lifecycle.Service {
	return locked(p, func() (names []lifecycle.Service) {
		for _, one := range p.tracker.lists.foreign[in.Registry].of(p.pod, in) {
			names = append(names, one.service)
		}
		return names
	})
}

// ForeignIPv6 reports whether, by the last list, such an entry of the service has [registry.MetaIPv6].
func (p *Pod) ForeignIPv6(in lifecycle.Key) bool {
	return locked(p, func() bool { return p.tracker.lists.foreign[in.Registry].ipv6[in.Service] })
}

// Found notes that the cache has the pod, so its end will be noted.
func (p *Pod) Found(reach lifecycle.Reach) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	p.pod.found, p.pod.reach = true, reach
}

// Uncached returns the pod as last cached, once its end is noted. It forgets a pod that was never cached: its end won't be.
func (p *Pod) Uncached() (last *lifecycle.Pod, forgotten bool) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	if p.pod.last == nil && !p.pod.found {
		delete(p.tracker.pods, p.pod.id.UID)
		return nil, true
	}
	return p.pod.last, false
}

// Begin comes before a change: its outcome is unknown from here on. A removal of the pod that had the endpoint before, such as a port of
// the node, may still be carried out after a Register: few registries can tell the two pods apart in that moment.
func (p *Pod) Begin(in lifecycle.Key, want lifecycle.Want, told registry.Instance, now time.Time) {
	p.change(in, func(i Instance) Instance {
		i = i.begin(want, told, now)
		late, is := p.tracker.removals[in]
		if is && want == lifecycle.InService && late.of != p.pod.id.UID && now.Before(late.until) {
			i.doubt = i.mayLand(late.want, late.until)
		}
		return i
	})
}

// Acknowledged follows the registry's answer.
func (p *Pod) Acknowledged(in lifecycle.Key, now time.Time) {
	p.change(in, func(i Instance) Instance { return i.acknowledge(now) })
}

// PassedOn notes that another pod's application has the endpoint, or none ever had. It reports whether that is new.
func (p *Pod) PassedOn(in lifecycle.Key, now time.Time) (news bool) {
	p.change(in, func(i Instance) Instance {
		news = !i.Stands(lifecycle.Absent)
		if news {
			return i.passOn(now)
		}
		return i
	})
	return news
}

// Failed notes that the change may still be carried out until lands if it timed out; else lands is zero.
func (p *Pod) Failed(in lifecycle.Key, lands time.Time) {
	p.change(in, func(i Instance) Instance {
		if i.AskedOut() && !lands.IsZero() {
			p.tracker.removals.add(in, removal{of: p.pod.id.UID, want: i.want, until: lands}, i.began)
		}
		return i.fail(lands)
	})
}

// Confirmed notes that the registry, asked then, had what is wanted.
func (p *Pod) Confirmed(in lifecycle.Key, asked time.Time) {
	p.change(in, func(i Instance) Instance { return i.confirm(asked) })
}

// Contradicted notes that the registry had something else than it acknowledged.
func (p *Pod) Contradicted(in lifecycle.Key, state registry.State) {
	p.change(in, func(i Instance) Instance { return i.contradict(state) })
}

// Saw notes that the registry, asked then, had an entry.
func (p *Pod) Saw(in lifecycle.Key, asked time.Time) {
	p.change(in, func(i Instance) Instance { i.seen = i.saw(asked); return i })
}

// Postpone notes when the registry wants the change again.
func (p *Pod) Postpone(in lifecycle.Key, said Postponement) {
	p.change(in, func(i Instance) Instance { i.postponed = &said; return i })
}

// OutAfterGone notes, once, that the application's entry was taken out after its pod was gone.
func (p *Pod) OutAfterGone(in lifecycle.Key, since time.Time) {
	p.change(in, func(i Instance) Instance {
		if i.out.OutAfterGone.IsZero() {
			i.out.OutAfterGone = since
		}
		return i
	})
}

// Given notes that clients are given it by an entry that no Rollcall has written, whatever was acknowledged.
func (p *Pod) Given(in lifecycle.Key) {
	p.change(in, func(i Instance) Instance { i.given = true; return i })
}

// GivenNoMore notes that they are not. If they were, the drain begins now.
func (p *Pod) GivenNoMore(in lifecycle.Key, now time.Time) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	if i, _ := p.pod.instances.get(in); i.given {
		p.pod.instances.set(in, i.givenNoMore(now))
	}
}

// LetGo comes before a removal, even if the call can't be made yet. What is unknown or absent stays so.
func (p *Pod) LetGo(in lifecycle.Key) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	if i, known := p.pod.instances.get(in); known && !i.Stands(lifecycle.Absent) {
		p.pod.instances.set(in, i.letGo())
	}
}

// Forget drops what was taken out, since the pod is in rotation by another key of what may be the same entry. What may still be carried out
// stays known.
func (p *Pod) Forget(in lifecycle.Key, now time.Time) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	if i, known := p.pod.instances.get(in); known && i.AskedOut() && !i.LandsUntil(false).After(now) {
		p.pod.instances = slices.DeleteFunc(slices.Clone(p.pod.instances), func(n named) bool { return n.Key == in })
	}
}

// Stay keeps alive what the pod has: it stays as it is.
func (p *Pod) Stay(has func(lifecycle.Key) bool) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	for _, n := range p.pod.instances {
		if n.removing && has(n.Key) {
			n.removing = false
			p.pod.instances.set(n.Key, n.Instance)
		}
	}
}

// Adopt takes an entry that is listed in rotation, unchanged, for an acknowledged Register, so a new leader need not register every pod
// again. It reports whether it did.
func (p *Pod) Adopt(target Target) (adopted bool) {
	p.change(target.Key(), func(i Instance) Instance {
		s := i.listed
		adopted = s != nil && s.Confirms && s.State == registry.InService && s.Instance.Equal(target.Instance)
		if adopted {
			return i.adopt(target.Instance)
		}
		return i
	})
	return adopted
}

// Recall keeps alive, once, what the record names: the first call can come late.
func (p *Pod) Recall(want lifecycle.Want, targets func() []Target, now time.Time) {
	if p.pod.recalled { // only the reconciler uses it
		return
	}
	p.pod.recalled = true
	for _, target := range targets() {
		p.change(target.Key(), func(i Instance) Instance { // if the record lies, the registry has no such entry, or a harmless one
			i.AcknowledgedAt, i.entry = now, &entry{instance: &target.Instance, want: want}
			return i
		})
	}
}

// RecallRemoval continues the drain of the record, if at is set. It comes before this process takes it out, whose clock may be ahead.
func (p *Pod) RecallRemoval(in lifecycle.Key, at *time.Time, ahead time.Duration) {
	if at != nil {
		p.change(in, func(i Instance) Instance { return i.recallRemoval(*at, ahead) })
	}
}

func (p *Pod) change(in lifecycle.Key, to func(Instance) Instance) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	i, _ := p.pod.instances.get(in)
	p.pod.instances.set(in, to(i))
}
