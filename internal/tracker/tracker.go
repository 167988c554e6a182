package tracker

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// manyInstances of one pod are more than any has by itself: from there on those are forgotten that have gone.
const manyInstances = 1000

// remembered is for how long at least it is known that a pod is gone. No list is that old.
const remembered = time.Hour

// Tracker is what this process knows, by pod. It is safe for concurrent use.
type Tracker struct {
	mu   sync.Mutex
	pods map[types.UID]*pod
	// closed is when a pod that changes were made for was forgotten, and swept when the old ones were last removed.
	closed map[types.UID]time.Time
	swept  time.Time

	// leads is when the first list was asked for, by a manager that led: all calls of those before it had ended. shown holds,
	// the registries that were listed at a time after that.
	leads time.Time
	shown map[string]bool
	// renamed holds, by the names of registries that the configuration no longer has, where entries were found that name them.
	renamed map[string]string
	// foreign is, by registry, what its last list had of entries that no Rollcall has written, and lists how many were compared.
	foreign map[string]foreign
	lists   int

	// lost are pods of which a registry has lost an instance, doubtful those of which a list says something unexpected.
	lost, doubtful []lifecycle.PodID
	signal         chan struct{}
}

// pod is one pod. Only its reconciler makes changes, and the queue never hands one pod to two workers.
type pod struct {
	id        lifecycle.PodID
	instances instances
	// opened: the reconciler has looked at it, or is to undo what it left. Until then only lists speak of it.
	opened bool
	// born: it came while this process was watching, so no other process has registered it, unless this one's watch lagged
	// when it began to lead.
	born bool
	// came is how many lists were compared before it came.
	came int
	// found: the cache had it after it was opened, so its departure is sure to be noted here. address and others are those that it had.
	found    bool
	recalled bool
	address  string
	others   []string
	// last is the pod as the cache had it last, once it is gone from there.
	last *corev1.Pod
}

// instances are those of one pod. It has one or two, for which a map would take more memory than they do.
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
	if at := all.index(in); at >= 0 {
		(*all)[at].Instance = i
		return
	}
	*all = append(*all, named{in, i})
}

// isKnown reports whether anything is known of its instances but what a record names. The caller holds the lock.
func (p *pod) isKnown() bool {
	return slices.ContainsFunc(p.instances, func(n named) bool { return n.Known() })
}

// New returns a Tracker that knows nothing.
func New() *Tracker {
	return &Tracker{
		pods: map[types.UID]*pod{}, closed: map[types.UID]time.Time{}, shown: map[string]bool{}, renamed: map[string]string{},
		foreign: map[string]foreign{}, signal: make(chan struct{}, 1),
	}
}

// Arrived notes a pod that came into the cache, in the order of the cache's events; born if this process was watching. Its name
// is what the cache says: an entry that was listed before may name another with its UID.
func (t *Tracker) Arrived(id lifecycle.PodID, born bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods[id.UID] == nil {
		t.add(id).born = born
	}
	p := t.pods[id.UID]
	p.id, p.last = id, nil
}

// Departed notes a pod that is gone from the cache, so that what it leaves behind can be undone. It forgets one that nothing
// is known of: the record of a pod that this process has not come to yet tells of more.
func (t *Tracker) Departed(last *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pods[last.UID]
	switch {
	case p == nil && !lifecycle.RecordOf(last).Exists():
		return
	case p == nil:
		p = t.add(lifecycle.PodIDOf(last))
	case !p.opened && !p.isKnown() && !lifecycle.RecordOf(last).Exists():
		delete(t.pods, last.UID)
		return
	}
	p.id, p.opened, p.last = lifecycle.PodIDOf(last), true, last
}

// Dying notes a pod that is on its way out and that the cache has not, since it lacks the label that the cache selects by.
func (t *Tracker) Dying(last *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.add(lifecycle.PodIDOf(last)); !p.opened {
		p.id, p.opened, p.last = lifecycle.PodIDOf(last), true, last
	}
}

// add makes the pod's place, or returns the one that it has. The caller holds the lock.
func (t *Tracker) add(id lifecycle.PodID) *pod {
	p := t.pods[id.UID]
	if p == nil {
		p = &pod{id: id, came: t.lists}
		t.pods[id.UID] = p
	}
	return p
}

// Pods returns how many pods something is known of, or will be.
func (t *Tracker) Pods() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pods)
}

// Departures returns the pods that are gone from the cache and whose traces are still to be undone.
func (t *Tracker) Departures() []*corev1.Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	var departed []*corev1.Pod
	for _, p := range t.pods {
		if p.last != nil {
			departed = append(departed, p.last)
		}
	}
	return departed
}

// Kept returns what a registry has acknowledged to hold and nothing has begun to take away: what has to be kept alive where
// entries expire.
func (t *Tracker) Kept(name string) []registry.Instance {
	var kept []registry.Instance
	t.each(func(_ *pod, in lifecycle.Key, i Instance) {
		if in.Registry == name && !in.ByApp() && i.kept() {
			kept = append(kept, *i.entry.instance)
		}
	})
	return kept
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

// Seen is what is known of one instance of a pod.
type Seen struct {
	Pod lifecycle.PodID
	In  lifecycle.Key
	// Want is what the last change asked for, or what a list says where this process has made none.
	Want lifecycle.Want
	// Acknowledged: the registry has said so, and nothing has said otherwise since.
	Acknowledged bool
}

// Seen returns the instances that a registry may have, for a person to look at.
func (t *Tracker) Seen() []Seen {
	var seen []Seen
	t.each(func(p *pod, in lifecycle.Key, i Instance) {
		if want, acknowledged := i.shows(); want != "" && !i.Stands(lifecycle.Absent) {
			seen = append(seen, Seen{Pod: p.id, In: in, Want: want, Acknowledged: acknowledged})
		}
	})
	return seen
}

// Steered returns which applications' entries a registry has acknowledged to be in service, or which to be out of it. What is at
// an address that the pod no longer has is another application's, and so is what has passed on.
func (t *Tracker) Steered(name string, in bool) (steered []registry.Instance) {
	t.each(func(p *pod, key lifecycle.Key, i Instance) {
		own := p.last == nil && (key.Address == p.address || slices.Contains(p.others, key.Address)) && i.told != nil
		if key.Registry == name && key.ByApp() && own && i.acknowledged && (i.want == lifecycle.InService) == in {
			steered = append(steered, *i.told)
		}
	})
	return steered
}

// Answered notes what a registry, asked at that time, said of an application's entry. Where that is not what it
// has acknowledged, and nothing was acknowledged since, the pod is looked at again, and Answered reports true.
func (t *Tracker) Answered(target Target, state registry.State, asked time.Time) (differs bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pods[types.UID(target.Instance.UID)]
	if p != nil && state == registry.Absent && len(p.others) > 0 { // the application may register at one of those
		t.look(&t.doubtful, p.id)
	}
	return t.hear(p, target.Key(), func(i Instance) (Instance, bool) { return i.answered(state, asked) })
}

// Lost notes that a registry, asked at that time, had no entry for an instance. What it acknowledged since counts more. An
// instance that is to be in service is registered again; one that is out of service needs no entry.
func (t *Tracker) Lost(target Target, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hear(t.pods[types.UID(target.Instance.UID)], target.Key(), func(i Instance) (Instance, bool) { return i.miss(asked) })
}

// hear notes what a registry said of an instance, where something is known of that. It has the pod looked at where that is news,
// and reports so. The caller holds the lock.
func (t *Tracker) hear(p *pod, in lifecycle.Key, said func(Instance) (after Instance, news bool)) (news bool) {
	if p == nil {
		return false
	}
	i, known := p.instances.get(in)
	if !known {
		return false
	}
	i, news = said(i)
	if p.instances.set(in, i); news {
		t.look(&t.lost, p.id)
	}
	return news
}

// Returned notes that the configuration has a registry again that it had dropped. Nobody has looked after its entries meanwhile, so that
// nothing that it acknowledged before counts.
func (t *Tracker) Returned(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pods {
		for at, n := range p.instances {
			if n.Registry == name {
				p.instances[at].Instance = n.doubt()
			}
		}
	}
}

// Open returns the pod for its reconciler, which is the only one to use it until it comes back to the queue.
func (t *Tracker) Open(id lifecycle.PodID) *Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.add(id)
	p.id, p.opened = id, true
	if len(p.instances) > manyInstances {
		p.instances = slices.DeleteFunc(p.instances, func(n named) bool { return n.Stands(lifecycle.Absent) && n.Settled() })
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

// Signal has a value when [Tracker.TakeDoubted] has something.
func (t *Tracker) Signal() <-chan struct{} { return t.signal }

// TakeDoubted returns, once, the pods of which a registry has lost an instance, and those of which a list says something
// unexpected.
func (t *Tracker) TakeDoubted() (lost, doubtful []lifecycle.PodID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost, doubtful = t.lost, t.doubtful
	t.lost, t.doubtful = nil, nil
	return lost, doubtful
}

// Doubt has the reconciler look at a pod when it has nothing better to do.
func (t *Tracker) Doubt(id lifecycle.PodID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look(&t.doubtful, id)
}

// look has the reconciler look at a pod, as one of those. The caller holds the lock.
func (t *Tracker) look(among *[]lifecycle.PodID, id lifecycle.PodID) {
	*among = append(*among, id)
	select {
	case t.signal <- struct{}{}:
	default: // a signal is waiting already
	}
}
