package checker

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
)

// appSeenWithin is how long it may take until a manager sees that an application put itself in service: it asks every 5 s, and a call
// may take its time.
const appSeenWithin = 10 * time.Second

// explainWithin is how long a flip waits for the answer to the patch that made it.
const explainWithin = 20 * time.Second

// flip is a handler that one version of a pod has and the one before has not, or the other way round.
type flip struct {
	pod     *podLog
	version int // index of the sighting that shows it
	handler string
	set     bool
}

// noteFlips finds what changed with the sighting. The caller holds the lock.
func (j *Journal) noteFlips(p *podLog, i int) {
	before, now := p.sightings[i-1], p.sightings[i]
	j.checkUnasked(p, before, now)
	j.checkBrought(p, now)
	if now.Gone && (now.Gap || !before.Deleting) {
		return // nothing tells what held it last
	}
	for _, h := range HandlersOf(p.hooks) {
		if before.Set[h] != now.Set[h] {
			j.pending = append(j.pending, flip{pod: p, version: i, handler: h, set: now.Set[h]})
		}
	}
}

// Judge decides on the flips whose patch is known by now, and on the calls that were done long enough ago for every flip
// before them to be known.
func (j *Journal) Judge(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = slices.DeleteFunc(j.pending, func(f flip) bool { return j.decide(f, now) })
	j.unjudged = slices.DeleteFunc(j.unjudged, func(c *Call) bool { return j.decideCall(c, now) })
	j.undescribed = slices.DeleteFunc(j.undescribed, func(c *Call) bool { return j.decideDescription(c, now) })
}

// Conclude judges what still waits for something that may explain it, once nothing more can come.
func (j *Journal) Conclude(now time.Time) { j.Judge(now.Add(explainWithin + watchLags)) }

// decide returns false where the answer to a patch may still tell whose the flip is.
func (j *Journal) decide(f flip, now time.Time) bool {
	after := f.pod.sightings[f.version]
	made, unknown := f.makers()
	if len(made) == 0 {
		waiting := slices.ContainsFunc(unknown, func(w *Patch) bool { return w.finished.IsZero() })
		if waiting && now.Sub(after.At) < explainWithin {
			return false
		}
		made = unknown
	}
	if len(made) == 0 {
		if !f.byKruise() {
			verb := map[bool]string{true: "set", false: "cleared"}[f.set]
			j.violate(f.pod, after.At, fmt.Sprintf("I3: handler %s was %s, and no manager's patch did it", f.handler, verb))
		}
		return true
	}
	j.judged++
	// Where it is not known which of several patches made it, one that was right is enough.
	var why string
	for _, w := range slices.Backward(made) {
		if why = j.fault(f, w.Received); why == "" {
			j.noteHook(f, w.Received)
			return true
		}
	}
	j.violate(f.pod, made[len(made)-1].Received, why)
	return true
}

// makers returns the patches that made the flip: they change its handler. Those whose answer is unknown, or still to come, may have made
// it if no other has.
func (f flip) makers() (made, unknown []*Patch) {
	for _, w := range f.pod.patches {
		switch {
		case w.Received.After(f.pod.sightings[f.version].At), !w.changes(f.handler, f.set):
		case w.Status == 0:
			unknown = append(unknown, w)
		case w.Status == http.StatusOK && f.pod.between(w.version, f.version):
			made = append(made, w)
		}
	}
	return made, unknown
}

// between reports whether a write that made this version of the pod shows in the sighting. What removes a dying pod's last
// finalizer deletes the pod, and answers with a version that the watch never shows.
func (p *podLog) between(version uint64, i int) bool {
	before, after := p.sightings[i-1], p.sightings[i]
	if after.Gone {
		return !slices.ContainsFunc(p.sightings[:i], func(s Sighting) bool { return s.Version == version })
	}
	return version > before.Version && version <= after.Version
}

func (j *Journal) violate(p *podLog, at time.Time, text string) {
	j.violations = append(j.violations, Violation{UID: p.uid, At: at, Text: text})
}

// fault says what is wrong with a flip by a patch that came at that time, or nothing.
func (j *Journal) fault(f flip, at time.Time) string {
	if f.set {
		return j.faultOfSet(f, at)
	}
	before, after := f.pod.sightings[f.version-1], f.pod.sightings[f.version]
	hook, allowed := f.pod.hooks.clearing(f.handler, before.State, before.Deleting)
	switch {
	case !allowed && !after.Gap:
		return fmt.Sprintf("I3: handler %s was cleared in state %q", f.handler, before.State)
	case hook == "":
		return ""
	}
	for _, k := range f.pod.registered() {
		if why := j.faultOfRelease(f, k, hook, at); why != "" {
			return fmt.Sprintf("I1: hook %s was released (%s), %s", hook, f.handler, why)
		}
	}
	return ""
}

// noteHook writes down which hook the flip released or asserted, if it was for one.
func (j *Journal) noteHook(f flip, at time.Time) {
	before := f.pod.sightings[f.version-1]
	hook, _ := f.pod.hooks.clearing(f.handler, before.State, before.Deleting)
	if f.set {
		hook, _ = f.pod.hooks.setting(f.handler, before.State, before.Deleting)
	}
	if hook == "" {
		return
	}
	noted := hookFlip{hook: hook, asserted: f.set, at: at, version: f.version}
	if !f.set {
		noted.drained = f.drain(j.Drain)
	}
	f.pod.hookFlips = append(f.pod.hookFlips, noted)
}

// faultOfRelease says why the instance was not out when the hook was released. After a gap it may have been either.
func (j *Journal) faultOfRelease(f flip, k Key, hook string, at time.Time) string {
	after := f.pod.sightings[f.version]
	l := j.life(f.pod, k)
	l.changes = append(l.changes, f.pod.appearances(k, at.Add(-appSeenWithin))...)
	return l.releasedEarly(release{at: at, stays: hook == InPlaceUpdate || after.Gap, drain: f.drain(j.Drain)})
}

// drain is what the release of a hook waits for, of a drain as it is configured: no one waits with a pod that is being deleted, which may
// have begun in a gap.
func (f flip) drain(configured time.Duration) time.Duration {
	before, after := f.pod.sightings[f.version-1], f.pod.sightings[f.version]
	if after.Deleting {
		return 0
	}
	if before.Drain != nil {
		return *before.Drain
	}
	return configured
}

// faultOfSet says what is wrong with setting a handler.
func (j *Journal) faultOfSet(f flip, at time.Time) string {
	before, after := f.pod.sightings[f.version-1], f.pod.sightings[f.version]
	hook, allowed := f.pod.hooks.setting(f.handler, before.State, before.Deleting)
	switch {
	case !allowed && !after.Gap:
		return fmt.Sprintf("I3: handler %s was set in state %q, being deleted: %t", f.handler, before.State, before.Deleting)
	case hook == "":
		return ""
	case hook == InPlaceUpdate && after.Gap && after.State != before.State:
		return "" // it may have been armed in another state
	}
	return j.faultOfAssert(f, at)
}

// faultOfAssert says where the pod was not in service when a handler was set that says so. A manager may not know yet that it has moved.
func (j *Journal) faultOfAssert(f flip, at time.Time) string {
	before, after := f.pod.sightings[f.version-1], f.pod.sightings[f.version]
	why := j.absentFrom(f.pod, after.Keys, at)
	for i := f.version; i > 0 && why != "" && f.pod.sightings[i].At.After(at.Add(-reasonLasts)); i-- {
		if former := f.pod.sightings[i-1]; former.Address == after.Address && j.absentFrom(f.pod, former.Keys, at) == "" {
			return ""
		}
	}
	if why != "" {
		return fmt.Sprintf("I2: %s was set in state %q, %s", f.handler, before.State, why)
	}
	return ""
}

// appearances are when the application itself put the instance in service, up to a time: nobody was told of what came later.
func (p *podLog) appearances(k Key, by time.Time) (all []change) {
	for _, a := range p.appeared {
		if a.key == k && !a.at.After(by) {
			all = append(all, change{name: "its application", op: Register, done: a.at})
		}
	}
	return all
}

// life is what the journal has of one entry.
func (j *Journal) life(p *podLog, k Key) life {
	l := p.life(k)
	l.shown = func(after, before time.Time, right func(registry.State) bool) bool {
		return j.told(k, after, before, right)
	}
	return l
}

func (p *podLog) life(k Key) life {
	l := life{key: k}
	for _, c := range p.calls {
		if c.Key() != k {
			continue
		}
		made := change{name: fmt.Sprintf("call #%d", c.number), op: c.Op, done: c.Applied}
		if c.succeeded() {
			made.answered = c.Answered
		}
		l.changes = append(l.changes, made)
	}
	for _, w := range p.wipes {
		if w.key == k {
			l.lost = append(l.lost, w.at)
		}
	}
	return l
}

// checkUnasked finds a pod that Kruise began to update while it was in service, and did not ask, since no handler was set:
// a pod has to be armed before it is put in service.
func (j *Journal) checkUnasked(p *podLog, before, now Sighting) {
	if now.Gap || now.State != string(appspub.LifecycleStateUpdating) || before.State == now.State {
		return
	}
	handlers := p.hooks[InPlaceUpdate]
	if len(handlers) == 0 || before.State == string(appspub.LifecycleStatePreparingUpdate) ||
		slices.ContainsFunc(handlers, func(h string) bool { return before.Set[h] }) || p.unarmable(before, handlers) {
		return
	}
	for _, k := range p.registered() {
		if last := p.life(k).last(before.At); last.op == Register {
			j.violate(p, now.At, fmt.Sprintf("I1: Kruise began to update the pod unasked from state %q, and %s had put it in service",
				before.State, last.name))
			return
		}
	}
}

// unarmable reports whether the pod comes from Updated, where it can't be armed before it is in service since setting the
// handlers says that it is. A deletion that begins there and is cancelled leads to PreparingNormal, and on to Normal only
// where no preNormal holds the pod until it is armed.
func (p *podLog) unarmable(before Sighting, handlers []string) bool {
	if before.State != string(appspub.LifecycleStatePreparingNormal) && len(p.hooks[PreNormal]) > 0 {
		return false
	}
	for _, s := range slices.Backward(p.sightings) {
		if slices.ContainsFunc(handlers, func(h string) bool { return s.Set[h] }) {
			return false
		}
		if s.State == string(appspub.LifecycleStateUpdated) {
			return true
		}
	}
	return false
}

// told reports whether the registry was asked after a time, and said so of the instance before another time.
func (j *Journal) told(k Key, after, before time.Time, right func(registry.State) bool) bool {
	for _, c := range slices.Backward(j.listings) {
		if c.Applied.Before(after) {
			return false
		}
		if c.Registry != k.Registry || !c.succeeded() || c.Answered.After(before) {
			continue
		}
		asked := KeyOf(k.Registry, c.Instance)
		if asked.UID = k.UID; asked.Service != "" && asked != k {
			continue // it asked for another one
		}
		state, found := c.seen[k]
		if !found {
			state = registry.Absent
		}
		if right(state) {
			return true
		}
	}
	return false
}

// registered returns the instances that a Register ever came for, each once.
func (p *podLog) registered() []Key {
	var keys []Key
	for _, c := range p.calls {
		if k := c.Key(); c.Op == Register && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}
