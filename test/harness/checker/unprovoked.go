package checker

import (
	"fmt"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

const (
	// reasonLasts is how old the reason of a call may be when the call arrives: the manager's cache lags, and the call was on
	// its way.
	reasonLasts = 10 * time.Second
	// watchLags is how late our watch may show a pod's change that a manager has seen already.
	watchLags = 3 * time.Second
	// blindAfter is how long a manager may still see nothing new after what made it blind: its watches back off.
	blindAfter = 40 * time.Second
)

// blindness is a time in which the harness kept managers from seeing the pods: the API server was away, or a manager was
// paused. A zero end means that it lasts.
type blindness struct{ began, ended time.Time }

// Blind writes down that managers see nothing until sight is called.
func (j *Journal) Blind(now time.Time) (sight func(time.Time)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := &blindness{began: now}
	j.blindnesses = append(j.blindnesses, b)
	return func(now time.Time) {
		j.mu.Lock()
		defer j.mu.Unlock()
		b.ended = now
	}
}

// oldestReason is how old what a manager knew may be, of one whose call came at that time. The caller holds the lock.
func (j *Journal) oldestReason(at time.Time) time.Time {
	oldest := at.Add(-reasonLasts)
	for _, b := range j.blindnesses {
		if b.ended.IsZero() || !at.After(b.ended.Add(blindAfter)) {
			oldest = soonest(oldest, b.began.Add(-reasonLasts))
		}
	}
	return oldest
}

// blind reports whether managers, or our watch, may not have seen the pods at a time. The caller holds the lock.
func (j *Journal) blind(at time.Time) bool { return j.oldestReason(at).Before(at.Add(-reasonLasts)) }

// unprovoked says that the call took out a pod for no reason: it had been Normal, ready and where the call says for longer
// than anybody can have missed. The caller holds the lock.
func (j *Journal) unprovoked(p *podLog, c *Call) string {
	if c.Op == Register || !j.OnlyManagers {
		return ""
	}
	k, from, by := c.Key(), j.oldestReason(c.Received), c.Received.Add(watchLags)
	since, steady := p.steadySince(func(s Sighting) bool { return s.steadyAt(k) }, from, by)
	if !steady {
		return j.leftTooSoon(p, c, from, by)
	}
	return fmt.Sprintf("I9: call #%d took %s out, and the pod had been Normal, ready and unmoved for %s",
		c.number, k, c.Received.Sub(since).Round(time.Millisecond))
}

// leftTooSoon says that the call took a pod that serves out of a place that it departs from, and clients did not find it yet where it
// belongs. Which description of the pod the manager had seen is not known, so one that is right is enough. The caller holds the lock.
func (j *Journal) leftTooSoon(p *podLog, c *Call, from, by time.Time) string {
	k := c.Key()
	_, stays := p.steadySince(func(s Sighting) bool { return s.steady() && s.Address == k.Address }, from, by)
	if !stays || !p.life(k).in(c.Received) {
		return ""
	}
	why := ""
	for _, s := range p.latestBetween(from, by) {
		if slices.Contains(s.Keys, k) {
			continue
		}
		if why = j.absentFrom(p, s.Keys, c.Received); why == "" {
			break
		}
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("I9: call #%d took %s out, from where the pod departs, %s", c.number, k, why)
}

// absentFrom says which of the instances clients could not find, as far as anyone was told by then, or nothing. The caller holds the lock.
func (j *Journal) absentFrom(p *podLog, keys []Key, at time.Time) string {
	if j.CallsUnseen {
		return ""
	}
	for _, k := range keys {
		if why := j.life(p, k).assertedEarly(at, j.ReaderLag[k.Registry]); why != "" {
			return why
		}
	}
	return ""
}

// steadySince returns since when the pod has been like this, and whether it was at every moment between two times. What was not seen in a
// gap is held against no one.
func (p *podLog) steadySince(like func(Sighting) bool, from, by time.Time) (since time.Time, steady bool) {
	for i, s := range p.sightings {
		switch {
		case like(s) && !(s.Gap && s.At.After(from)):
			if since.IsZero() {
				since = s.At
			}
		case !p.changedAt(i).After(by):
			since = time.Time{}
		}
	}
	return since, !since.IsZero() && !since.After(from)
}

// changedAt is a time before which the pod was not as its i-th sighting shows it. Only a move is stamped.
func (p *podLog) changedAt(i int) time.Time {
	if s := p.sightings[i]; i == 0 || s.State != p.sightings[i-1].State {
		return s.since()
	}
	return p.sightings[i].At
}

// steadyAt reports whether the pod can stay where it is, and the instance is one that it has.
func (s Sighting) steadyAt(k Key) bool { return s.steady() && slices.Contains(s.Keys, k) }

func (s Sighting) steady() bool {
	return s.State == string(appspub.LifecycleStateNormal) && s.Ready && !s.Deleting && !s.Gone
}

// byKruise reports whether Kruise itself may have changed the handler: it sets those of inPlaceUpdate where another update comes before
// the last one is over, which may have happened unseen in a gap, and with its move to Updating it writes what two templates differ in.
// Those of inPlaceUpdate it finds cleared by then, unless the update before has brought them.
func (f flip) byKruise() bool {
	before, after := f.pod.sightings[f.version-1], f.pod.sightings[f.version]
	inPlace := slices.Contains(f.pod.hooks[InPlaceUpdate], f.handler)
	again := before.State == string(appspub.LifecycleStateUpdated) && after.State == string(appspub.LifecycleStatePreparingUpdate)
	unasked := before.State == string(appspub.LifecycleStateNormal) && !after.Gap
	differs := f.set || !inPlace || unasked || before.State == string(appspub.LifecycleStateUpdating)
	return differs && after.State == string(appspub.LifecycleStateUpdating) || f.set && inPlace && (again || after.Gap)
}
