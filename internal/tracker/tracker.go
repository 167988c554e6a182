package tracker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// manyInstances are more than a pod has: beyond that, absent ones are forgotten.
const manyInstances = 600

// remembered is how long a gone pod is known. No list is that old.
const remembered = time.Hour

// Tracker is what this process knows, by pod. It is safe for concurrent use.
type Tracker struct {
	// Signal has a value when [Tracker.TakeDoubted] has something.
	Signal <-chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*pod
	// closed are forgotten pods that had been changed. swept is when old ones were dropped.
	closed map[types.UID]time.Time
	swept  time.Time

	lists    listings
	removals removals
	doubts   doubts
}

// removals are the removals that timed out, by the key that they would take out: they may hit the next pod at the endpoint.
type removals map[lifecycle.Key]removal

// removal is one pod's that may be carried out until then.
type removal struct {
	of    types.UID
	want  lifecycle.Want
	until time.Time
}

// RemovalMayLand notes that the removal of an entry, of a pod that need not be known, may be carried out until then.
func (t *Tracker) RemovalMayLand(target Target, now, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removals.add(target.Key(), removal{of: target.Pod().UID, want: lifecycle.Absent, until: until}, now)
}

func (all removals) add(in lifecycle.Key, r removal, now time.Time) {
	maps.DeleteFunc(all, func(_ lifecycle.Key, before removal) bool { return before.until.Before(now) })
	all[in] = r
}

// doubts are pods to visit.
type doubts struct {
	// missed have a missing instance; doubtful have an unexpected one.
	missed, doubtful []lifecycle.PodID
	signal           chan struct{}
}

func (d *doubts) add(among *[]lifecycle.PodID, id lifecycle.PodID) {
	*among = append(*among, id)
	select {
	case d.signal <- struct{}{}:
	default: // a signal is waiting already
	}
}

// pod is used by one worker at a time.
type pod struct {
	id        lifecycle.PodID
	instances instances
	// opened: the reconciler knows it. Until then, only lists show it.
	opened bool
	// born: it came while this process watched, so no other has registered it, unless the watch lagged at first.
	born bool
	// came counts the lists before it.
	came int
	// joined is when the namespace of a pod that was there before was taken in: no list that was asked for earlier had its entries.
	joined time.Time
	// found: it was cached since it was opened, with that reach, so its end will be noted.
	found    bool
	recalled bool
	reach    lifecycle.Reach
	// last is the pod as last cached, once gone from there.
	last *lifecycle.Pod
}

// instances are one or two, for which a map takes more memory. A list is replaced, never changed: a [Known] may have it.
type instances []named //nolint:recvcheck // a value, but for set, which may add one

type named struct {
	lifecycle.Key
	Instance
}

func (all instances) index(in lifecycle.Key) int {
	return slices.IndexFunc(all, func(n named) bool { return n.Key == in })
}

func (all instances) get(in lifecycle.Key) (i Instance, has bool) {
	if at := all.index(in); at >= 0 {
		return all[at].Instance, true
	}
	return Instance{}, false
}

func (all *instances) set(in lifecycle.Key, i Instance) {
	*all = slices.Clone(*all)
	if at := all.index(in); at >= 0 {
		(*all)[at].Instance = i
		return
	}
	*all = append(*all, named{in, i})
}

// isKnown reports whether more is known than a record. Needs the lock.
func (p *pod) isKnown() bool {
	return slices.ContainsFunc(p.instances, func(n named) bool { return n.Known() })
}

// New returns an empty Tracker.
func New() *Tracker {
	signal := make(chan struct{}, 1)
	return &Tracker{
		Signal: signal, pods: map[types.UID]*pod{}, closed: map[types.UID]time.Time{},
		lists: listings{
			shown: map[string]lifecycle.Coverage{}, asked: map[string]time.Time{}, renamed: map[string]string{}, foreign: map[string]foreign{},
		},
		removals: removals{}, doubts: doubts{signal: signal},
	}
}

// Arrived notes a cached pod, in the order of events; born if this process was watching. Its name is right: an entry with its UID can have
// another.
func (t *Tracker) Arrived(id lifecycle.PodID, born bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrived(id, born)
}

// arrived needs the lock.
func (t *Tracker) arrived(id lifecycle.PodID, born bool) *pod {
	if t.pods[id.UID] == nil {
		t.add(id).born = born
	}
	p := t.pods[id.UID]
	p.id, p.last = id, nil
	return p
}

// Joined is [Tracker.Arrived] for a cached pod whose namespace is taken in now.
func (t *Tracker) Joined(id lifecycle.PodID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.arrived(id, false)
	p.born, p.joined = false, now
}

// Has reports whether the pod is known.
func (t *Tracker) Has(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pods[uid] != nil
}

// In returns the known pods of a namespace.
func (t *Tracker) In(namespace string) (in []lifecycle.PodID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pods {
		if p.id.Namespace == namespace {
			in = append(in, p.id)
		}
	}
	return in
}

// Uncached notes a pod that left the cache, to undo what it left. It forgets a pod without record of which nothing is known.
func (t *Tracker) Uncached(last *lifecycle.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.add(lifecycle.PodIDOf(last))
	if !p.opened && !p.isKnown() && !lifecycle.RecordOf(last).Exists() {
		delete(t.pods, last.UID)
		return
	}
	p.id, p.opened, p.last = lifecycle.PodIDOf(last), true, last
}

// Dying notes a pod that ends and was never cached, since it lacks the label that the cache selects by.
func (t *Tracker) Dying(last *lifecycle.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.add(lifecycle.PodIDOf(last)); !p.opened {
		p.id, p.opened, p.last = lifecycle.PodIDOf(last), true, last
	}
}

// add returns the pod, which it adds if need be. Needs the lock.
func (t *Tracker) add(id lifecycle.PodID) *pod {
	p := t.pods[id.UID]
	if p == nil {
		p = &pod{id: id, came: t.lists.number}
		t.pods[id.UID] = p
	}
	return p
}

// Pods counts the pods.
func (t *Tracker) Pods() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pods)
}

// AllUncached returns pods that left the cache and something in a registry.
func (t *Tracker) AllUncached() []*lifecycle.Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	var uncached []*lifecycle.Pod
	for _, p := range t.pods {
		if p.last != nil {
			uncached = append(uncached, p.last)
		}
	}
	return uncached
}

func ofRollcall(name string) lifecycle.Source {
	return lifecycle.Source{Registry: name, Writer: lifecycle.Rollcall}
}

// Kept returns what needs heartbeats in the registry: acknowledged, and not being removed.
func (t *Tracker) Kept(name string) []registry.Instance {
	var kept []registry.Instance
	t.each(func(_ *pod, in lifecycle.Key, i Instance) {
		if in.Source() == ofRollcall(name) && i.lives() {
			kept = append(kept, *i.entry.instance)
		}
	})
	return kept
}

// Whereabouts returns the services under which a registry may have a pod's entry by Rollcall, by the pod's namespace.
func (t *Tracker) Whereabouts(name string) map[string]map[lifecycle.Service]bool {
	services := map[string]map[lifecycle.Service]bool{}
	t.each(func(p *pod, in lifecycle.Key, i Instance) {
		if in.Source() != ofRollcall(name) || !i.mayBeThere() {
			return
		}
		if services[p.id.Namespace] == nil {
			services[p.id.Namespace] = map[lifecycle.Service]bool{}
		}
		services[p.id.Namespace][in.Service] = true
	})
	return services
}

func (t *Tracker) each(see func(p *pod, in lifecycle.Key, i Instance)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pods {
		for _, n := range p.instances {
			see(p, n.Key, n.Instance)
		}
	}
}

// Seen is an instance for display.
type Seen struct {
	Pod lifecycle.PodID
	In  lifecycle.Key
	// Want is the last change, else what a list shows.
	Want lifecycle.Want
	// Acknowledged: so is Want, and nothing contradicts it.
	Acknowledged bool
}

// EachSeen shows the instances that a registry may have. The callback must not use the Tracker.
func (t *Tracker) EachSeen(see func(Seen)) {
	t.each(func(p *pod, in lifecycle.Key, i Instance) {
		if want, acknowledged := i.shows(); want != "" && !i.Stands(lifecycle.Absent) {
			see(Seen{Pod: p.id, In: in, Want: want, Acknowledged: acknowledged})
		}
	})
}

// Steered returns applications' entries acknowledged as in rotation, or as out. An address that the pod lost, or passed on, is another's.
func (t *Tracker) Steered(name string, in bool) (steered []registry.Instance) {
	of := lifecycle.Source{Registry: name, Writer: lifecycle.Application}
	t.each(func(p *pod, key lifecycle.Key, i Instance) {
		own := p.last == nil && p.reach.Has(key.Address) && i.told != nil
		if key.Source() == of && own && i.acknowledged && (i.want == lifecycle.InService) == in {
			steered = append(steered, *i.told)
		}
	})
	return steered
}

// Answered notes what a registry, asked then, shows of an application's entry. It reports whether that differs from what was acknowledged
// before, and queues the pod if so.
func (t *Tracker) Answered(target Target, state registry.State, asked time.Time) (differs bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pods[types.UID(target.Instance.UID)]
	if p != nil && state == registry.Absent && p.reach.Several() { // the application may register at one of those
		t.doubts.add(&t.doubts.doubtful, p.id)
	}
	return t.hear(p, target.Key(), func(i Instance) (Instance, bool) { return i.answered(state, asked) })
}

// Missing notes that a registry, asked then, had no entry. One in rotation is registered again, unless acknowledged since.
func (t *Tracker) Missing(target Target, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hear(t.pods[types.UID(target.Instance.UID)], target.Key(), func(i Instance) (Instance, bool) { return i.miss(asked) })
}

// hear notes what a registry showed of a known instance, and queues the pod if that is news. Needs the lock.
func (t *Tracker) hear(p *pod, in lifecycle.Key, said func(Instance) (after Instance, news bool)) (news bool) {
	if p == nil {
		return false
	}
	i, known := p.instances.get(in)
	if !known {
		return false
	}
	i, news = said(i)
	p.instances.set(in, i)
	if news {
		t.doubts.add(&t.doubts.missed, p.id)
	}
	return news
}

// Returned notes that the configuration has the registry again. Nobody watched its entries, so no acknowledgement counts.
func (t *Tracker) Returned(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pods {
		for _, n := range p.instances {
			if n.Registry == name {
				n.acknowledged, n.out = false, n.again()
				p.instances.set(n.Key, n.Instance)
			}
		}
	}
}

// Open returns the pod for its reconciler alone, until it is queued again.
func (t *Tracker) Open(id lifecycle.PodID) *Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.add(id)
	p.id, p.opened = id, true
	if len(p.instances) > manyInstances {
		p.instances = slices.DeleteFunc(slices.Clone(p.instances), func(n named) bool { return n.gone() })
	}
	return &Pod{tracker: t, pod: p}
}

// Close forgets the pod.
func (t *Tracker) Close(uid types.UID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pods[uid]
	if p == nil {
		return
	}
	if p.isKnown() {
		if now.Sub(t.swept) > remembered {
			maps.DeleteFunc(t.closed, func(_ types.UID, at time.Time) bool { return now.Sub(at) > remembered })
			t.swept = now
		}
		t.closed[uid] = now
	}
	delete(t.pods, uid)
}

// TakeDoubted returns, once, the pods with a missing instance and those with an unexpected one.
func (t *Tracker) TakeDoubted() (missed, doubtful []lifecycle.PodID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	missed, doubtful = t.doubts.missed, t.doubts.doubtful
	t.doubts.missed, t.doubts.doubtful = nil, nil
	return missed, doubtful
}

// Doubt queues the pod with low urgency.
func (t *Tracker) Doubt(id lifecycle.PodID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubts.add(&t.doubts.doubtful, id)
}
