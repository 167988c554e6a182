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
	c := comparison{Tracker: t, Listing: l}
	c.forgetUnopened()
	t.lists.note(l)
	c.noteForeign()
	listed := make(map[types.UID]map[lifecycle.Key]bool, len(l.Entries))
	for _, e := range l.Entries {
		uid, writtenUnder := types.UID(e.UID), c.writtenUnder(e)
		e.Registry = cmp.Or(e.Registry, l.Registry)
		target := Target{Registry: l.Registry, Instance: e.Instance}
		if listed[uid] == nil {
			listed[uid] = map[lifecycle.Key]bool{}
		}
		listed[uid][target.Key()] = true
		if c.hasLeft(uid, target.Key()) {
			continue
		}
		c.found.Standing = append(c.found.Standing, e)
		if writtenUnder == l.Registry {
			c.sight(target, e)
		}
	}
	c.found.Missing = c.missing(listed)
	return c.found
}

// comparison is one list while it is compared, which needs the lock.
type comparison struct {
	*Tracker
	Listing

	found Comparison
}

// missing are in rotation and not listed, and would have been.
func (c *comparison) missing(listed map[types.UID]map[lifecycle.Key]bool) (missing []Seen) {
	missed := func(i Instance) (Instance, bool) { return i.miss(c.asOf()) }
	for uid, p := range c.pods {
		for _, n := range p.instances {
			if n.Source() == ofRollcall(c.Registry) && c.Coverage.Has(n.Service) && !listed[uid][n.Key] && c.hear(p, n.Key, missed) {
				missing = append(missing, Seen{Pod: p.id, In: n.Key, Want: lifecycle.InService})
			}
		}
	}
	return missing
}

// hasLeft reports whether it was acknowledged to be absent after the list.
func (c *comparison) hasLeft(uid types.UID, in lifecycle.Key) bool {
	if p := c.pods[uid]; p != nil {
		i, _ := p.instances.get(in)
		return i.Stands(lifecycle.Absent) && i.AcknowledgedAt.After(c.asOf())
	}
	return c.closed[uid].After(c.asOf())
}

func (c *comparison) sight(target Target, e registry.Entry) {
	in := target.Key()
	p := c.add(target.Pod())
	i, _ := p.instances.get(in)
	i, look, differs := i.sight(Sighting{Instance: e.Instance, State: e.State, AsOf: c.asOf(), Confirms: c.Confirms})
	p.instances.set(in, i)
	switch {
	case !p.opened:
		c.found.Unknown = append(c.found.Unknown, e)
		return
	case look:
		c.doubts.add(&c.doubts.doubtful, p.id)
	}
	if differs {
		c.found.Different++
	}
}

// listings are what all lists have shown.
type listings struct {
	// leads is when this leader first asked for a list: earlier leaders' calls had ended. shown is what each registry has listed since.
	leads time.Time
	shown map[string]lifecycle.Coverage
	// asked is when the last list of each registry was asked for.
	asked map[string]time.Time
	// renamed maps former names in entries to present ones.
	renamed map[string]string
	// foreign is each registry's last list of them. number counts all lists.
	foreign map[string]foreign
	number  int
}

// note notes a list as of a time after the earlier leaders.
func (ls *listings) note(l Listing) {
	if ls.leads.IsZero() || l.Asked.Before(ls.leads) { // the list that was asked for first may be compared last
		ls.leads = l.Asked
	}
	if !l.asOf().Before(ls.leads) {
		ls.shown = maps.Clone(ls.shown) // which is known to the pods as it was
		ls.shown[l.Registry] = l.Coverage
	}
	ls.asked[l.Registry] = later(ls.asked[l.Registry], l.Asked)
	ls.number++
}

// shownTo are the lists that could have the pod's entries.
func (ls *listings) shownTo(p *pod) map[string]lifecycle.Coverage {
	if p.joined.IsZero() {
		return ls.shown
	}
	shown := maps.Clone(ls.shown)
	maps.DeleteFunc(shown, func(registry string, _ lifecycle.Coverage) bool { return !ls.asked[registry].After(p.joined) })
	return shown
}

// foreign are one list's, of which there may be many more than pods.
type foreign struct {
	at map[lifecycle.Endpoint][]entryOfOthers
	// ipv6 are the services in which one of them has [registry.MetaIPv6].
	ipv6 map[lifecycle.Service]bool
	// number counts the lists.
	number int
}

// entryOfOthers is a [lifecycle.Foreign] by its endpoint.
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
func (f foreign) around(p *pod, in lifecycle.Key) (around []lifecycle.Foreign) {
	if len(f.at) == 0 {
		return nil
	}
	own := endpointOf(in)
	for _, at := range append([]lifecycle.Endpoint{own}, p.reach.Others(own)...) {
		in.Address, in.Port = at.Address, at.Port
		for _, one := range f.of(p, in) {
			if one.service == in.Service {
				around = append(around, lifecycle.Foreign{Endpoint: at, Tagged: one.tagged})
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
		if misses(name) {
			f.ipv6[name] = true
		}
	}
}

// noteForeign keeps the foreign entries of all endpoints, since some of a pod's instances are known only later, and queues pods for which
// they changed.
func (c *comparison) noteForeign() {
	before, now := c.lists.foreign[c.Registry], foreignOf(c.Listing, c.lists.number)
	now.keep(before, c.Coverage.Misses) // what was seen in a place that does not answer now may be there
	for _, ofOne := range now.at {
		slices.SortFunc(ofOne, func(a, b entryOfOthers) int {
			return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.tagged, b.tagged))
		})
	}
	c.lists.foreign[c.Registry] = now
	if before.isEmpty() && now.isEmpty() {
		return
	}
	for _, p := range c.pods {
		for _, n := range p.instances {
			if p.opened && n.Registry == c.Registry && foreignDiffers(p, n.Key, before, now) {
				c.doubts.add(&c.doubts.doubtful, p.id)
			}
		}
	}
}

func foreignDiffers(p *pod, in lifecycle.Key, before, now foreign) bool {
	return before.ipv6[in.Service] != now.ipv6[in.Service] || !slices.Equal(before.of(p, in), now.of(p, in)) ||
		!slices.Equal(before.around(p, in), now.around(p, in))
}

// writtenUnder returns the entry's registry by its present name.
func (c *comparison) writtenUnder(e registry.Entry) string {
	if c.Names[e.Registry] {
		return e.Registry
	}
	if e.Registry != "" && (e.ClusterUID == "" || e.ClusterUID == c.ClusterUID) {
		if c.lists.renamed[e.Registry] == "" {
			c.found.Renamed = append(c.found.Renamed, e.Registry)
		}
		c.lists.renamed = maps.Clone(c.lists.renamed) // as above
		c.lists.renamed[e.Registry] = c.Registry
	}
	return c.Registry
}

// forgetUnopened: of pods not yet reconciled, only the last list of a place counts.
func (c *comparison) forgetUnopened() {
	for uid, p := range c.pods {
		if p.opened {
			continue
		}
		p.instances = slices.DeleteFunc(slices.Clone(p.instances), func(n named) bool {
			return n.Registry == c.Registry && !c.Coverage.Misses(n.Service)
		})
		if len(p.instances) == 0 && !p.born && p.joined.IsZero() && p.last == nil {
			delete(c.pods, uid)
		}
	}
}
