package tracker

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// Listing is what a registry answered when it was asked for all entries of this cluster.
type Listing struct {
	// Registry is its name in the configuration.
	Registry string
	// Names are the registries of the configuration.
	Names map[string]bool
	// Asked is when the call began, and Staleness how old the answer may be.
	Asked     time.Time
	Staleness time.Duration
	// Confirms: an entry may stand for an acknowledgement of Register, since the answer is not stale, and the entry does not
	// expire unless this process makes the call.
	Confirms bool
	Entries  []registry.Entry
	// Foreign are entries that no Rollcall has written, and that clients are given.
	Foreign []registry.Entry
}

func (l Listing) asOf() time.Time { return l.Asked.Add(-l.Staleness) }

// Comparison is what came of a Listing.
type Comparison struct {
	// Missing are instances in service that were not listed, and Different is how many entries say something else than was
	// acknowledged last. The reconciler looks at their pods again, and makes the calls that they need.
	Missing   []Seen
	Different int
	// Unknown are entries of pods that the reconciler has not looked at: they are gone, or it has not come to them yet.
	Unknown []registry.Entry
	// Standing are the entries but those that were acknowledged to be absent since.
	Standing []registry.Entry
	// Renamed are the former names of the registry that no list before had.
	Renamed []string
}

// Compare holds what a registry has against what it acknowledged. What was acknowledged after the registry was asked counts
// more than the list.
//
// An entry that names another registry of the configuration was written under that name: both mean one server. It is there,
// and that registry's list counts for it. One that names a registry which the configuration no longer has was written before
// that was renamed, and one that names none by an older version: both are this registry's.
func (t *Tracker) Compare(l Listing) Comparison {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetUnopened(l.Registry)
	t.noteShown(l)
	t.noteForeign(l)
	var result Comparison
	listed := make(map[types.UID]map[lifecycle.Key]bool, len(l.Entries))
	for _, e := range l.Entries {
		uid, writtenUnder := types.UID(e.UID), t.writtenUnder(e, l, &result)
		if e.Registry == "" {
			e.Registry = l.Registry
		}
		target := Target{Registry: l.Registry, Instance: e.Instance}
		if listed[uid] == nil {
			listed[uid] = map[lifecycle.Key]bool{}
		}
		listed[uid][target.Key()] = true
		if t.hasLeft(uid, target.Key(), l.asOf()) {
			continue
		}
		result.Standing = append(result.Standing, e)
		if writtenUnder == l.Registry {
			t.sight(target, e, l, &result)
		}
	}
	result.Missing = t.missing(l, listed)
	return result
}

// missing are the instances in service that the list lacks.
func (t *Tracker) missing(l Listing, listed map[types.UID]map[lifecycle.Key]bool) (missing []Seen) {
	missed := func(i Instance) (Instance, bool) { return i.miss(l.asOf()) }
	of := lifecycle.Source{Registry: l.Registry}
	for uid, p := range t.pods {
		for _, n := range p.instances {
			if n.Source() == of && !listed[uid][n.Key] && t.hear(p, n.Key, missed) {
				missing = append(missing, Seen{Pod: p.id, In: n.Key, Want: lifecycle.InService})
			}
		}
	}
	return missing
}

// hasLeft reports whether an instance that a list of that time has was acknowledged to be absent since. The caller holds the
// lock, as of all that follows.
func (t *Tracker) hasLeft(uid types.UID, in lifecycle.Key, asOf time.Time) bool {
	if p := t.pods[uid]; p != nil {
		i, _ := p.instances.get(in)
		return i.Stands(lifecycle.Absent) && i.since.After(asOf)
	}
	return t.closed[uid].After(asOf)
}

func (t *Tracker) sight(target Target, e registry.Entry, l Listing, result *Comparison) {
	in := target.Key()
	p := t.add(target.Pod())
	if !p.opened {
		result.Unknown = append(result.Unknown, e)
	}
	i, _ := p.instances.get(in)
	i, look, differs := i.sight(Sighting{Instance: e.Instance, State: e.State, AsOf: l.asOf(), Confirms: l.Confirms})
	p.instances.set(in, i)
	if look && p.opened {
		t.look(&t.doubtful, p.id)
	}
	if differs && p.opened {
		result.Different++
	}
}

// noteShown notes a list that has all that the leaders before this one left.
func (t *Tracker) noteShown(l Listing) {
	if t.leads.IsZero() || l.Asked.Before(t.leads) { // the list that was asked for first may be compared last
		t.leads = l.Asked
	}
	if !l.asOf().Before(t.leads) {
		t.shown = maps.Clone(t.shown) // which is known to the pods as it was
		t.shown[l.Registry] = true
	}
}

// foreign are the entries of one list that no Rollcall has written: the names under which clients are given an address and port.
type foreign struct {
	names map[place][]string
	// number is that of the list.
	number int
}

type place struct {
	address string
	port    int
}

// of returns the names that count for an instance of a pod. A list that was compared before the pod came tells of whichever pod had
// its address then. An application's own entry is as expected, once and under its name.
func (f foreign) of(p *pod, in lifecycle.Key) []string {
	names := f.names[place{in.Address, in.Port}]
	if p.born && p.came >= f.number || in.ByApp() && len(names) == 1 && names[0] == in.Service {
		return nil
	}
	return names
}

// noteForeign notes what a list has of entries that no Rollcall has written, and has the pods looked at for whose instances that has
// changed. All of it is kept: of a pod's instances, some are known only later, and none at a change of leader.
func (t *Tracker) noteForeign(l Listing) {
	names := make(map[place][]string, len(l.Foreign))
	for _, e := range l.Foreign {
		at := place{e.Address, e.Port}
		names[at] = append(names[at], e.Service)
	}
	for _, ofOne := range names {
		slices.Sort(ofOne)
	}
	t.lists++
	before, now := t.foreign[l.Registry], foreign{names: names, number: t.lists}
	t.foreign[l.Registry] = now
	for _, p := range t.pods {
		for _, n := range p.instances {
			if p.opened && n.Registry == l.Registry && !slices.Equal(before.of(p, n.Key), now.of(p, n.Key)) {
				t.look(&t.doubtful, p.id)
			}
		}
	}
}

// writtenUnder returns under which registry of the configuration an entry was written, and notes a registry that has
// another name now.
func (t *Tracker) writtenUnder(e registry.Entry, l Listing, result *Comparison) string {
	if l.Names[e.Registry] {
		return e.Registry
	}
	if e.Registry != "" {
		if t.renamed[e.Registry] == "" {
			result.Renamed = append(result.Renamed, e.Registry)
		}
		t.renamed = maps.Clone(t.renamed) // as above
		t.renamed[e.Registry] = l.Registry
	}
	return l.Registry
}

// forgetUnopened makes room for a new answer of the registry: of pods that the reconciler has not come to, only the last
// list counts.
func (t *Tracker) forgetUnopened(name string) {
	for uid, p := range t.pods {
		if p.opened {
			continue
		}
		p.instances = slices.DeleteFunc(p.instances, func(n named) bool { return n.Registry == name })
		if len(p.instances) == 0 && !p.born && p.last == nil {
			delete(t.pods, uid)
		}
	}
}
