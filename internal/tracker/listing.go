package tracker

import (
	"cmp"
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
	// ClusterUID is this cluster's; empty if unknown.
	ClusterUID string
	// Coverage is what the list can have: outside, nothing is missing.
	Coverage lifecycle.Coverage
	Entries  []registry.Entry
	// Foreign are entries that clients are given and this registry's driver does not manage: others', and those with this cluster's ownership
	// tag under another identity.
	Foreign []registry.Entry
}

func (l Listing) asOf() time.Time { return l.Asked.Add(-l.Staleness) }

// Comparison is the result of a list.
type Comparison struct {
	// Missing are in rotation and not listed. Different counts entries that differ from what was acknowledged. The reconciler makes the calls.
	Missing   []Seen
	Different int
	// Unknown are of pods that the reconciler has not visited, or that are gone.
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
	t.forgetUnopened(l)
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

// missing are in rotation and not listed, and would have been.
func (t *Tracker) missing(l Listing, listed map[types.UID]map[lifecycle.Key]bool) (missing []Seen) {
	missed := func(i Instance) (Instance, bool) { return i.miss(l.asOf()) }
	of := lifecycle.Source{Registry: l.Registry}
	for uid, p := range t.pods {
		for _, n := range p.instances {
			if n.Source() == of && l.Coverage.Has(n.Service) && !listed[uid][n.Key] && t.hear(p, n.Key, missed) {
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
		t.shown[l.Registry] = l.Coverage
	}
	if l.Asked.After(t.asked[l.Registry]) {
		t.asked[l.Registry] = l.Asked
	}
}

// Foreign is an entry of a service by which clients are given an endpoint, and which this configuration does not manage.
type Foreign struct {
	Endpoint lifecycle.Endpoint
	// Tagged is what the registry calls it if it has this cluster's ownership tag, where the driver does not write one: the options were
	// others, or somebody copied it. Empty if somebody else wrote it.
	Tagged string
}

// foreign are one list's, of which there may be many more than pods.
type foreign struct {
	at map[lifecycle.Endpoint][]entryOfOthers
	// ipv6 are the services in which one of them has [registry.MetaIPv6].
	ipv6 map[lifecycle.Service]bool
	// number counts the lists.
	number int
}

// entryOfOthers is a [Foreign] by its endpoint.
type entryOfOthers struct {
	service lifecycle.Service
	tagged  string
}

func endpointOf(in lifecycle.Key) lifecycle.Endpoint {
	return lifecycle.Endpoint{Address: in.Address, Port: in.Port}
}

// of returns those at the endpoint that count for a pod: not those listed before it came, when another pod had its address, nor its own
// application's entry, once and under its name.
func (f foreign) of(p *pod, in lifecycle.Key) []entryOfOthers {
	found := f.at[endpointOf(in)]
	switch {
	case p.born && p.came >= f.number:
		return nil
	case !in.ByApp():
		return found
	}
	var others, tagged []entryOfOthers
	for _, one := range found {
		if one.tagged == "" {
			others = append(others, one)
		} else {
			tagged = append(tagged, one)
		}
	}
	if len(others) == 1 && others[0].service == in.Service {
		return tagged
	}
	return found
}

// around are those under the service at any endpoint of the pod by which clients reach the same.
func (f foreign) around(p *pod, in lifecycle.Key) (around []Foreign) {
	if len(f.at) == 0 {
		return nil
	}
	own := endpointOf(in)
	for _, at := range append([]lifecycle.Endpoint{own}, p.reach.Others(own)...) {
		in.Address, in.Port = at.Address, at.Port
		for _, one := range f.of(p, in) {
			if one.service == in.Service {
				around = append(around, Foreign{Endpoint: at, Tagged: one.tagged})
			}
		}
	}
	return around
}

func (f foreign) isEmpty() bool { return len(f.at)+len(f.ipv6) == 0 }

func foreignOf(l Listing, number int) foreign {
	f := foreign{at: make(map[lifecycle.Endpoint][]entryOfOthers, len(l.Foreign)), ipv6: map[lifecycle.Service]bool{}, number: number}
	for _, e := range l.Foreign {
		if e.Registry != l.Registry && l.Names[e.Registry] {
			continue // another section of the configuration manages it
		}
		at, one := lifecycle.Endpoint{Address: e.Address, Port: e.Port}, entryOfOthers{service: lifecycle.Service(e.Service)}
		if e.UID != "" {
			one.tagged = cmp.Or(e.ID, "one of pod "+e.Namespace+"/"+e.Pod)
		}
		f.at[at] = append(f.at[at], one)
		if e.Metadata[registry.MetaIPv6] != "" {
			f.ipv6[one.service] = true
		}
	}
	return f
}

// keep takes over what is known of services that a list does not cover.
func (f foreign) keep(before foreign, misses func(lifecycle.Service) bool) {
	for at, known := range before.at {
		for _, one := range known {
			if misses(one.service) {
				f.at[at] = append(f.at[at], one)
			}
		}
	}
	for name := range before.ipv6 {
		f.ipv6[name] = f.ipv6[name] || misses(name)
	}
}

// noteForeign keeps the foreign entries of all endpoints, since some of a pod's instances are known only later, and queues pods for which
// they changed.
func (t *Tracker) noteForeign(l Listing) {
	t.lists++
	before, now := t.foreign[l.Registry], foreignOf(l, t.lists)
	if l.Coverage.Template != "" { // what was seen in a place that does not answer now may be there
		now.keep(before, l.Coverage.Misses)
	}
	for _, ofOne := range now.at {
		slices.SortFunc(ofOne, func(a, b entryOfOthers) int {
			return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.tagged, b.tagged))
		})
	}
	t.foreign[l.Registry] = now
	if before.isEmpty() && now.isEmpty() {
		return
	}
	for _, p := range t.pods {
		for _, n := range p.instances {
			if p.opened && n.Registry == l.Registry && foreignDiffers(p, n.Key, before, now) {
				t.look(&t.doubtful, p.id)
			}
		}
	}
}

func foreignDiffers(p *pod, in lifecycle.Key, before, now foreign) bool {
	return before.ipv6[in.Service] != now.ipv6[in.Service] || !slices.Equal(before.of(p, in), now.of(p, in)) ||
		!slices.Equal(before.around(p, in), now.around(p, in))
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

// forgetUnopened: of pods not yet reconciled, only the last list of a place counts.
func (t *Tracker) forgetUnopened(l Listing) {
	for uid, p := range t.pods {
		if p.opened {
			continue
		}
		p.instances = slices.DeleteFunc(slices.Clone(p.instances), func(n named) bool {
			return n.Registry == l.Registry && !l.Coverage.Misses(n.Service)
		})
		if len(p.instances) == 0 && !p.born && p.joined.IsZero() && p.last == nil {
			delete(t.pods, uid)
		}
	}
}
