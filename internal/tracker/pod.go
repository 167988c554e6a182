package tracker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// Pod is one pod, for its reconciler.
type Pod struct {
	tracker *Tracker
	pod     *pod
}

func locked[T any](p *Pod, read func() T) T {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return read()
}

// Standing returns what is known of one instance.
func (p *Pod) Standing(in lifecycle.Key) Instance {
	return locked(p, func() Instance { i, _ := p.pod.instances.get(in); return i })
}

// Known returns what is known of the pod now.
func (p *Pod) Known() Known {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return Known{
		instances: slices.Clone(p.pod.instances), born: p.pod.born, shown: p.tracker.shown, renamed: p.tracker.renamed,
	}
}

// Foreign reports whether clients are given the instance by an entry that no Rollcall has written, by the last list.
func (p *Pod) Foreign(in lifecycle.Key) bool {
	return slices.Contains(p.ForeignNames(in), in.Service)
}

// ForeignNames returns under which service names clients are given the instance's address and port by entries that no Rollcall has
// written, by the last list: each as often as it is there, sorted, and none of an application's entry that is there once, under its own.
func (p *Pod) ForeignNames(in lifecycle.Key) []string {
	return locked(p, func() []string { return p.tracker.foreign[in.Registry].of(p.pod, in) })
}

// Departed returns the pod as the cache had it last; nil while it is there, or was never found.
func (p *Pod) Departed() *corev1.Pod { return locked(p, func() *corev1.Pod { return p.pod.last }) }

// Found notes that the cache has the pod at these addresses, so that its departure is sure to be noted too.
func (p *Pod) Found(address string, others []string) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	p.pod.found, p.pod.address, p.pod.others = true, address, others
}

// CloseUnlessFound forgets a pod that the cache never had. It reports false where the departure of one that it had is noted,
// or still to be noted.
func (p *Pod) CloseUnlessFound() bool {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	if p.pod.found || p.pod.last != nil {
		return false
	}
	delete(p.tracker.pods, p.pod.id.UID)
	return true
}

// Begin is called before a change is made: from here on its outcome is unknown.
func (p *Pod) Begin(in lifecycle.Key, want lifecycle.Want, told registry.Instance, now time.Time) {
	p.change(in, func(i Instance) Instance { return i.begin(want, told, now) })
}

// Acknowledged is called when the registry has acknowledged the change.
func (p *Pod) Acknowledged(in lifecycle.Key, now time.Time) {
	p.change(in, func(i Instance) Instance { return i.acknowledge(now) })
}

// PassedOn is called when another pod's application has the instance's place, or nobody's had it ever. It reports whether that is news.
func (p *Pod) PassedOn(in lifecycle.Key, now time.Time) (news bool) {
	p.change(in, func(i Instance) Instance {
		if news = !i.Stands(lifecycle.Absent); news {
			return i.passOn(now)
		}
		return i
	})
	return news
}

// Failed is called when the change ended in an error. Where it timed out, it may still be carried out until lands; else lands
// is zero.
func (p *Pod) Failed(in lifecycle.Key, lands time.Time) {
	p.change(in, func(i Instance) Instance { return i.fail(lands) })
}

// Confirmed is called when the registry, asked at that time, said what is wanted.
func (p *Pod) Confirmed(in lifecycle.Key, asked time.Time) {
	p.change(in, func(i Instance) Instance { return i.confirm(asked) })
}

// Contradicted is called when the registry was asked and said something else than it has acknowledged.
func (p *Pod) Contradicted(in lifecycle.Key, state registry.State) {
	p.change(in, func(i Instance) Instance { return i.contradict(state) })
}

// Saw is called when the registry, asked at that time, had an entry.
func (p *Pod) Saw(in lifecycle.Key, asked time.Time) {
	p.change(in, func(i Instance) Instance { return i.saw(asked) })
}

// Postpone notes a registry's word when to come back with a change.
func (p *Pod) Postpone(in lifecycle.Key, said Postponement) {
	p.change(in, func(i Instance) Instance { i.postponed = &said; return i })
}

// OutAfterGone notes that the entry of an application was taken out at that time whose pod is gone. The first time counts.
func (p *Pod) OutAfterGone(in lifecycle.Key, since time.Time) {
	p.change(in, func(i Instance) Instance {
		if i.outAfterGone.IsZero() {
			i.outAfterGone = since
		}
		return i
	})
}

// Given is called when clients are given the instance by an entry that no Rollcall has written, whatever the registry has acknowledged.
func (p *Pod) Given(in lifecycle.Key) {
	p.change(in, func(i Instance) Instance { i.given = true; return i })
}

// GivenNoMore is called when they are not: the drain of an instance that is out begins only now where they were.
func (p *Pod) GivenNoMore(in lifecycle.Key, now time.Time) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	if i, _ := p.pod.instances.get(in); i.given {
		p.pod.instances.set(in, i.givenNoMore(now))
	}
}

// LetGo is called before an instance is taken away, also where no call for that can be made now. Of one that nothing is known of, or
// that is known to be absent, there is nothing to let go.
func (p *Pod) LetGo(in lifecycle.Key) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	if i, known := p.pod.instances.get(in); known && !i.Stands(lifecycle.Absent) {
		p.pod.instances.set(in, i.letGo())
	}
}

// Stay is called when the pod is left as it is at an address, before what it departs from is taken away.
func (p *Pod) Stay(address string) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	for at, n := range p.pod.instances {
		if n.Address == address {
			p.pod.instances[at].Instance = n.stay()
		}
	}
}

// Adopt takes what a list has in service, as it is now, for an acknowledgement of Register, so that a new leader need
// not register every pod again. It reports whether a list has it.
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

// Recall has what the pod's record names kept alive from the first look at the pod on, and not only from the first call: none
// may come for as long as the pod stays as it is. It does so once.
func (p *Pod) Recall(want lifecycle.Want, targets func() []Target, now time.Time) {
	if p.pod.recalled { // only the reconciler uses it
		return
	}
	p.pod.recalled = true
	for _, target := range targets() {
		p.change(target.Key(), func(i Instance) Instance { return i.recall(want, target.Instance, now) })
	}
}

// RecallRemoval has the drain of an instance go on that another manager began, by the pod's record; at is nil where that does not say.
// It is called before this process takes the instance out.
func (p *Pod) RecallRemoval(in lifecycle.Key, at *time.Time) {
	if at != nil {
		p.change(in, func(i Instance) Instance { return i.recallRemoval(*at) })
	}
}

func (p *Pod) change(in lifecycle.Key, to func(Instance) Instance) {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	i, _ := p.pod.instances.get(in)
	p.pod.instances.set(in, to(i))
}
