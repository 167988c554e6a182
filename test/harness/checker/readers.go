package checker

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"
)

// Place is where clients find a pod: an address with its port, under the name of a service.
type Place struct{ Service, Endpoint string }

// PlaceOf is that of an instance.
func PlaceOf(k Key) Place {
	return Place{Service: k.Service, Endpoint: net.JoinHostPort(k.Address, strconv.Itoa(k.Port))}
}

// Reading is what a client of one server was given of a service. It was so at some moment between the question and the answer.
type Reading struct {
	Server          int
	Service         string
	Asked, Answered time.Time
	Given           []string // address:port
	// Apart: the server may have been without the majority of its peers at the time, or for a moment before it.
	Apart bool
}

func (r Reading) gives(p Place) bool { return slices.Contains(r.Given, p.Endpoint) }

// claim is what clients must be given, or must not be given, from one moment until another; a zero until is open.
type claim struct {
	uid   string
	place Place
	// in: they must be given it.
	in          bool
	from, until time.Time
	// rule is the invariant's, and since the event that it rests on, at a time.
	rule, since string
	at          time.Time
}

// covers reports whether the claim was in force all the time in which the reading of its service may have been true. A server may be as
// far behind as lag.
func (c claim) covers(r Reading, lag time.Duration) bool {
	return r.Asked.After(c.from.Add(lag)) && (c.until.IsZero() || r.Answered.Before(c.until))
}

// broken returns the first reading of the service by the majority that the claim does not allow.
func (c claim) broken(readings []Reading, lag time.Duration) (Reading, bool) {
	i := slices.IndexFunc(readings, func(r Reading) bool { return !r.Apart && c.covers(r, lag) && r.gives(c.place) != c.in })
	if i < 0 {
		return Reading{}, false
	}
	return readings[i], true
}

// Stale is how long after its release a pod was still given, at the worst.
type Stale struct {
	For    time.Duration
	Server int
	Place  Place
}

func (s Stale) String() string {
	if s.For == 0 {
		return "never"
	}
	return "for " + s.For.Round(time.Millisecond).String()
}

// worst returns how long after its event a reader, of a server of the majority or of one apart, was last given the pod.
func (c claim) worst(readings []Reading, apart bool) (worst Stale) {
	for _, r := range readings {
		if r.Apart == apart && c.covers(r, 0) && r.gives(c.place) {
			worst = Worse(worst, Stale{For: r.Asked.Sub(c.at), Server: r.Server, Place: c.place})
		}
	}
	return worst
}

// violation says what is wrong with the reading.
func (c claim) violation(r Reading) Violation {
	was := map[bool]string{true: "was not given", false: "was given"}[c.in]
	when := fmt.Sprintf("%s after %s", r.Asked.Sub(c.at).Round(time.Millisecond), c.since)
	if r.Asked.Before(c.at) {
		when = fmt.Sprintf("%s before %s, and the drain is %s", c.at.Sub(r.Asked).Round(time.Millisecond), c.since, c.at.Sub(c.from))
	}
	return Violation{UID: c.uid, At: r.Asked, Text: fmt.Sprintf("%s: a reader of server %d %s %s of %s, asked %s",
		c.rule, r.Server, was, c.place.Endpoint, c.place.Service, when)}
}

// Foreign writes down that the harness adds an entry that is not Rollcall's, and from when the registry has acknowledged it: zero is not
// yet, and perhaps never.
func (j *Journal) Foreign(at Place, acknowledged time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.foreign[at].IsZero() {
		j.foreign[at] = acknowledged
	}
}

// IsForeign reports whether the place is that of an entry that the harness has added.
func (j *Journal) IsForeign(at Place) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, found := j.foreign[at]
	return found
}

// JudgeReadings holds what readers were given against what happened to the pods, and returns the worst that a reader was given after
// its release: at a server of the majority, and at one apart from it. The readings are in the order of time, and what happened up to the
// last one is known. A server of the majority may answer what was true as long ago as lag.
func (j *Journal) JudgeReadings(readings []Reading, lag time.Duration) (majority, apart Stale) {
	j.mu.Lock()
	defer j.mu.Unlock()
	owners := j.owners()
	of := map[string][]Reading{}
	for _, r := range readings {
		of[r.Service] = append(of[r.Service], r)
	}
	j.judgeForeign(readings, of, owners, lag)
	for _, uid := range slices.Sorted(maps.Keys(j.pods)) {
		for _, c := range j.pods[uid].claims(owners, of, j.oldestReason) {
			those := of[c.place.Service]
			if r, wrong := c.broken(those, lag); wrong {
				j.violations = append(j.violations, c.violation(r))
			}
			if c.in {
				continue
			}
			majority, apart = Worse(majority, c.worst(those, false)), Worse(apart, c.worst(those, true))
		}
	}
	return majority, apart
}

// judgeForeign holds what readers were given against I10: what others wrote stays, and no service has an endpoint that no one put there.
// The caller holds the lock.
func (j *Journal) judgeForeign(readings []Reading, of map[string][]Reading, owners map[Place][]owner, lag time.Duration) {
	for place, acknowledged := range j.foreign {
		c := claim{place: place, in: true, rule: "I10", from: acknowledged, at: acknowledged, since: "others had written it"}
		if r, wrong := c.broken(of[place.Service], lag); wrong && !acknowledged.IsZero() {
			j.violations = append(j.violations, c.violation(r))
		}
	}
	told := map[Place]bool{}
	for _, r := range readings {
		for _, endpoint := range r.Given {
			at := Place{Service: r.Service, Endpoint: endpoint}
			if _, foreign := j.foreign[at]; foreign || told[at] || hadBy(owners[at], r.Answered) || j.blind(r.Asked) {
				continue
			}
			told[at] = true
			j.violations = append(j.violations, Violation{At: r.Asked, Text: fmt.Sprintf(
				"I10: a reader of server %d was given %s of %s, where no pod has ever been", r.Server, endpoint, r.Service)})
		}
	}
}

// hadBy reports whether any pod may have been at the place by a time.
func hadBy(owners []owner, by time.Time) bool {
	return slices.ContainsFunc(owners, func(o owner) bool { return !o.at.Add(-watchLags).After(by) })
}

// Worse is the longer of two.
func Worse(a, b Stale) Stale {
	if b.For > a.For {
		return b
	}
	return a
}

// owner is a pod, and when it was first seen at a place.
type owner struct {
	uid string
	at  time.Time
}

// owners are the pods that have ever had each place. The caller holds the lock.
func (j *Journal) owners() map[Place][]owner {
	all := map[Place][]owner{}
	for uid, p := range j.pods {
		for _, s := range p.sightings {
			for _, k := range s.Keys {
				place := PlaceOf(k)
				if had := all[place]; len(had) == 0 || had[len(had)-1].uid != uid {
					all[place] = append(had, owner{uid, s.At})
				}
			}
		}
	}
	return all
}

// claims are what follows from the pod's history for what readers of each service are given.
func (p *podLog) claims(owners map[Place][]owner, readings map[string][]Reading, known func(time.Time) time.Time) (all []claim) {
	for _, h := range p.hookFlips {
		keys, until := p.sightings[h.version-1].Keys, p.backAfter(h)
		if h.asserted {
			keys, until = p.sightings[h.version].Keys, p.outAfter(h.version)
		}
		rule, since := "I1", fmt.Sprintf("hook %s was released", h.hook)
		if h.asserted {
			rule, since = "I2", fmt.Sprintf("hook %s was asserted", h.hook)
		}
		for _, k := range keys {
			place := PlaceOf(k)
			c := claim{
				uid: p.uid, place: place, in: h.asserted, rule: rule, from: h.at.Add(-h.drained), at: h.at, since: since, until: until,
			}
			if !c.in {
				c.until = soonest(until, nextOwner(owners[place], p.uid, h.at))
			}
			if !c.in && p.neverReady(h.version) && hadByAnother(owners[place], p.uid, h.at) {
				continue // what readers are given is the other's entry, as docs/limits.md says
			}
			all = append(all, c)
		}
	}
	return append(all, p.stays(readings, known)...)
}

// stays are the claims of a pod that is steady: once it was found, it must stay.
func (p *podLog) stays(readings map[string][]Reading, known func(time.Time) time.Time) (all []claim) {
	for i, s := range p.sightings {
		if !s.steady() || i > 0 && p.sightings[i-1].steady() && !s.Gap {
			continue
		}
		until := p.outAfter(i)
		for _, k := range s.Keys {
			place := PlaceOf(k)
			found := slices.IndexFunc(readings[place.Service], func(r Reading) bool {
				return !r.Apart && !known(r.Asked).Before(s.At) && r.gives(place)
			})
			if found >= 0 {
				from := readings[place.Service][found].Answered
				all = append(all, claim{
					uid: p.uid, place: place, in: true, rule: "I9", from: from, at: from, until: until,
					since: "it was found, Normal and ready",
				})
			}
		}
	}
	return all
}

// backAfter is a time before which a pod whose hook was released was not back in a state in which it may be in; what happened in a gap is
// not known.
func (p *podLog) backAfter(h hookFlip) time.Time {
	return p.firstFrom(h.version, func(s Sighting) bool { return !s.leaving() })
}

// outAfter is a time before which a pod that was in at its i-th sighting had no reason to be taken out.
func (p *podLog) outAfter(i int) time.Time {
	return p.firstFrom(i+1, func(s Sighting) bool { return s.leaving() || !s.Ready })
}

// firstFrom is a time before which the pod was not like this, at or after its i-th sighting. A move is stamped; of the rest a manager
// may know sooner than our watch.
func (p *podLog) firstFrom(i int, like func(Sighting) bool) time.Time {
	for ; i < len(p.sightings); i++ {
		switch s := p.sightings[i]; {
		case s.Gap:
			return p.sightings[i-1].At
		case !like(s):
		case s.State != p.sightings[i-1].State:
			return s.since()
		default:
			return s.At.Add(-watchLags)
		}
	}
	return time.Time{}
}

// nextOwner is when another pod may be at the place after a time.
func nextOwner(owners []owner, uid string, after time.Time) (next time.Time) {
	for _, o := range owners {
		if o.uid != uid && o.at.After(after) {
			next = soonest(next, o.at.Add(-watchLags))
		}
	}
	return next
}

// hadByAnother reports whether another pod was at the place before.
func hadByAnother(owners []owner, uid string, before time.Time) bool {
	return slices.ContainsFunc(owners, func(o owner) bool { return o.uid != uid && o.at.Before(before) })
}

// neverReady reports whether the pod was not ready in any sighting before this one, nor in a gap: so no manager has registered it.
func (p *podLog) neverReady(before int) bool {
	return !slices.ContainsFunc(p.sightings[:before], func(s Sighting) bool { return s.Ready || s.Gap })
}

// soonest is the earlier of two times, of which zero is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
