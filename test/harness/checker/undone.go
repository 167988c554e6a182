package checker

import (
	"fmt"
	"slices"
	"time"
)

// decideCall finds a call that undoes what a hook's flip rests on, or that takes a pod out for no reason. It returns false
// while a flip, or a reason, may still become known.
func (j *Journal) decideCall(c *Call, now time.Time) bool {
	p := j.pods[c.Instance.UID]
	if p == nil {
		return true
	}
	if now.Sub(c.Applied) < explainWithin || slices.ContainsFunc(j.pending, func(f flip) bool { return f.pod == p }) {
		return false
	}
	for _, why := range []string{j.undone(p, c), j.unprovoked(p, c)} {
		if why != "" {
			j.violate(p, c.Applied, why)
		}
	}
	return true
}

// undone says what the call undoes that it must not, or nothing.
func (j *Journal) undone(p *podLog, c *Call) string {
	switch {
	case c.Applied.Sub(c.Received) > 2*j.CallTimeout:
		return ""
	case c.Op == Register:
		return p.releaseUndone(c)
	default:
		return p.assertionUndone(c)
	}
}

// releaseUndone says whether a Register puts the pod in after a hook was released, and before it is back where it should be in.
// A release waits for calls that were on their way then, and none may be sent after it.
func (p *podLog) releaseUndone(c *Call) string {
	released := p.lastHook(c.Applied, false)
	if released.at.IsZero() {
		return ""
	}
	when, at := "on its way", c.Applied
	if c.Received.After(released.at) {
		when, at = "sent afterwards", c.Received
	}
	if p.movedSince(released, at, func(s Sighting) bool { return !s.leaving() }) {
		return ""
	}
	return fmt.Sprintf("I1: hook %s was released, and call #%d, %s, put the pod in service after it", released.hook, c.number, when)
}

// assertionUndone says whether a call that was on its way when a hook was asserted takes the pod out after it, though it
// should be in. One that was sent afterwards has a reason of its own.
func (p *podLog) assertionUndone(c *Call) string {
	asserted := p.lastHook(c.Applied, true)
	if !c.Received.Before(asserted.at) || !p.wasIn(c.Key(), asserted, c.Applied) {
		return ""
	}
	if p.movedSince(asserted, c.Applied, func(s Sighting) bool { return s.leaving() || !s.Ready }) {
		return ""
	}
	return fmt.Sprintf("I2: hook %s was asserted, and call #%d, on its way, took %s out of service after it",
		asserted.hook, c.number, c.Key())
}

// lastHook is the zero value if there is none.
func (p *podLog) lastHook(before time.Time, asserted bool) (last hookFlip) {
	for _, h := range p.hookFlips {
		if h.asserted == asserted && h.at.Before(before) && h.at.After(last.at) {
			last = h
		}
	}
	return last
}

// movedSince reports whether the pod was seen like this after the flip and may have been so by a time. What was not seen in
// a gap is not judged.
func (p *podLog) movedSince(h hookFlip, by time.Time, like func(Sighting) bool) bool {
	return slices.ContainsFunc(p.sightings[h.version:], func(s Sighting) bool {
		return s.Gap || like(s) && !s.since().After(by)
	})
}

// wasIn reports whether the instance is one for which the hook was asserted, and was still in service just before a time.
func (p *podLog) wasIn(k Key, asserted hookFlip, at time.Time) bool {
	if !slices.Contains(p.sightings[asserted.version].Keys, k) {
		return false
	}
	before := at.Add(-time.Nanosecond)
	l := p.life(k)
	return l.in(before) && l.lostBetween(l.last(before).done, before).IsZero()
}
