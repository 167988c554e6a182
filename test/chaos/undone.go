package main

import (
	"fmt"
	"slices"
	"time"
)

// landsWithin is how long after it came a call may still be carried out. The design assumes no more, so no manager waits
// for longer, and what lands later is not judged.
const landsWithin = 2 * callTimeout

// decideCall finds a call that undoes what a hook's flip rests on, or that takes a pod out for no reason. It returns false
// while a flip, or a reason, may still become known.
func (j *journal) decideCall(c *call, now time.Time) bool {
	p := j.pods[c.instance.UID]
	if p == nil {
		return true
	}
	if now.Sub(c.applied) < explainWithin || slices.ContainsFunc(j.pending, func(f flip) bool { return f.pod == p }) {
		return false
	}
	for _, why := range []string{p.undone(c), j.unprovoked(p, c)} {
		if why != "" {
			j.violate(p, c.applied, why)
		}
	}
	return true
}

// undone says what the call undoes that it must not, or nothing.
func (p *podLog) undone(c *call) string {
	switch {
	case c.applied.Sub(c.received) > landsWithin:
		return ""
	case c.op == opRegister:
		return p.releaseUndone(c)
	default:
		return p.assertionUndone(c)
	}
}

// releaseUndone says whether a Register puts the pod in after a hook was released, and before it is back where it should be in.
// A release waits for calls that were on their way then, and none may be sent after it.
func (p *podLog) releaseUndone(c *call) string {
	released, found := p.lastHook(c.applied, false)
	if !found {
		return ""
	}
	when, at := "on its way", c.applied
	if c.received.After(released.at) {
		when, at = "sent afterwards", c.received
	}
	if p.movedSince(released, at, func(s sighting) bool { return !s.leaving() }) {
		return ""
	}
	return fmt.Sprintf("I1: hook %s was released, and call #%d, %s, put the pod in service after it", released.hook, c.number, when)
}

// assertionUndone says whether a call that was on its way when a hook was asserted takes the pod out after it, though it
// should be in. One that was sent afterwards has a reason of its own.
func (p *podLog) assertionUndone(c *call) string {
	asserted, found := p.lastHook(c.applied, true)
	if !found || !c.received.Before(asserted.at) || !p.wasIn(c.key(), asserted, c.applied) {
		return ""
	}
	if p.movedSince(asserted, c.applied, func(s sighting) bool { return s.leaving() || !s.ready }) {
		return ""
	}
	return fmt.Sprintf("I2: hook %s was asserted, and call #%d, on its way, took %s out of service after it",
		asserted.hook, c.number, c.key())
}

func (p *podLog) lastHook(before time.Time, asserted bool) (last hookFlip, found bool) {
	for _, h := range p.hookFlips {
		if h.asserted == asserted && h.at.Before(before) && (!found || h.at.After(last.at)) {
			last, found = h, true
		}
	}
	return last, found
}

// movedSince reports whether the pod was seen like this after the flip and may have been so by a time. What was not seen in
// a gap is not judged.
func (p *podLog) movedSince(h hookFlip, by time.Time, like func(sighting) bool) bool {
	return slices.ContainsFunc(p.sightings[h.version:], func(s sighting) bool {
		return s.gap || like(s) && !s.since().After(by)
	})
}

// wasIn reports whether the instance is one for which the hook was asserted, and was still in service just before a time.
func (p *podLog) wasIn(k key, asserted hookFlip, at time.Time) bool {
	if !p.workload.has(k, p.sightings[asserted.version].address) {
		return false
	}
	before := at.Add(-time.Nanosecond)
	last := p.lastApplied(k, before, op.changes)
	if last == nil || last.op != opRegister {
		return false
	}
	_, wiped := p.wiped(k, last.applied, before)
	return !wiped
}
