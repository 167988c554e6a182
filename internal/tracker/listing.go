package tracker

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// Listing is a registry's answer to a list of this cluster's entries.
type Listing struct {
	// Registry is its name in the configuration.
	Registry string
	// Names are all of the configuration's.
	Names map[string]bool
	// Asked is when the call began. The answer may be older by Staleness.
	Asked     time.Time
	Staleness time.Duration
	// Confirms: an entry can stand for an acknowledged Register, since the list is not stale and entries don't expire without a call.
	Confirms bool
	// Partial: it has only the places in which cached pods are.
	Partial bool
	// ClusterUID is this cluster's; empty if unknown.
	ClusterUID string
	Entries    []registry.Entry
	// Foreign are entries that clients are given and no Rollcall has written.
	Foreign []registry.Entry
}

func (l Listing) asOf() time.Time { return l.Asked.Add(-l.Staleness) }

// Comparison is the result of a list.
type Comparison struct {
	// Missing are in service and not listed. Different counts entries that differ from what was acknowledged. The reconciler makes the calls.
	Missing   []Seen
	Different int
	// Unknown are of pods that the reconciler has not looked at, or that are gone.
	Unknown []registry.Entry
	// Standing are all but those acknowledged to be absent since.
	Standing []registry.Entry
	// Renamed are former names of the registry, when first found.
	Renamed []string
}

// Compare compares a list with what was acknowledged. Later acknowledgements win. By the name in an entry of registry new:
//
//	new                     compared
//	old, in configuration   the same server has two names: there, but the list of old counts
//	old, not in it          compared: it was renamed, unless the entry may be another cluster's
//	none                    compared: an older version wrote it
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

// missing are in service and not listed.
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

// hasLeft reports whether it was acknowledged to be absent after the list. Needs the lock, as does all below.
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

// noteShown notes a list as of a time after the earlier leaders.
func (t *Tracker) noteShown(l Listing) {
	if t.leads.IsZero() || l.Asked.Before(t.leads) { // the list that was asked for first may be compared last
		t.leads = l.Asked
	}
	if !l.asOf().Before(t.leads) {
		t.shown = maps.Clone(t.shown) // which is known to the pods as it was
		t.shown[l.Registry] = !l.Partial
	}
}

// foreign are the names under which one list's entries that no Rollcall wrote give an endpoint to clients.
type foreign struct {
	names map[endpoint][]string
	// ipv6 are the services in which one of them has [registry.MetaIPv6].
	ipv6 map[string]bool
	// number counts the lists.
	number int
}

type endpoint struct {
	address string
	port    int
}

// of returns the names that count for a pod: not those listed before it came, when another pod had its address, nor its own application's
// entry, once and under its name.
func (f foreign) of(p *pod, in lifecycle.Key) []string {
	names := f.names[endpoint{in.Address, in.Port}]
	if p.born && p.came >= f.number || in.ByApp() && len(names) == 1 && names[0] == in.Service {
		return nil
	}
	return names
}

// noteForeign keeps the foreign entries of all endpoints, since some of a pod's instances are known only later, and queues pods for which
// they changed.
func (t *Tracker) noteForeign(l Listing) {
	names, ipv6 := make(map[endpoint][]string, len(l.Foreign)), map[string]bool{}
	for _, e := range l.Foreign {
		at := endpoint{e.Address, e.Port}
		names[at] = append(names[at], e.Service)
		if e.Metadata[registry.MetaIPv6] != "" {
			ipv6[e.Service] = true
		}
	}
	for _, ofOne := range names {
		slices.Sort(ofOne)
	}
	t.lists++
	before, now := t.foreign[l.Registry], foreign{names: names, ipv6: ipv6, number: t.lists}
	t.foreign[l.Registry] = now
	for _, p := range t.pods {
		for _, n := range p.instances {
			differs := before.ipv6[n.Service] != now.ipv6[n.Service] || !slices.Equal(before.of(p, n.Key), now.of(p, n.Key))
			if p.opened && n.Registry == l.Registry && differs {
				t.look(&t.doubtful, p.id)
			}
		}
	}
}

// writtenUnder returns the entry's registry by its present name.
func (t *Tracker) writtenUnder(e registry.Entry, l Listing, result *Comparison) string {
	if l.Names[e.Registry] {
		return e.Registry
	}
	if e.Registry != "" && (e.ClusterUID == "" || e.ClusterUID == l.ClusterUID) {
		if t.renamed[e.Registry] == "" {
			result.Renamed = append(result.Renamed, e.Registry)
		}
		t.renamed = maps.Clone(t.renamed) // as above
		t.renamed[e.Registry] = l.Registry
	}
	return l.Registry
}

// forgetUnopened: of pods not yet reconciled, only the last list counts.
func (t *Tracker) forgetUnopened(name string) {
	for uid, p := range t.pods {
		if p.opened {
			continue
		}
		p.instances = slices.DeleteFunc(slices.Clone(p.instances), func(n named) bool { return n.Registry == name })
		if len(p.instances) == 0 && !p.born && p.last == nil {
			delete(t.pods, uid)
		}
	}
}
