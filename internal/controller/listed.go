package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

// remembered is for how long at least it is known that a pod is gone. No list is that old.
const remembered = time.Hour

// Listing is what a registry answered when it was asked for all that is ours.
type Listing struct {
	// Registry is its name in the configuration, and From what was asked: another one of that name is another registry.
	Registry string
	From     *registryclient.Client
	// Asked is when the call began.
	Asked time.Time
	// Staleness is how old the answer may be.
	Staleness time.Duration
	// Confirms says that an entry may stand for an acknowledgement of Register: the answer is not stale, and the entry
	// does not expire unless this process makes the call.
	Confirms bool
	Entries  []registry.Entry
	// Foreign are entries that no Rollcall has written, and that clients are given.
	Foreign []registry.Entry
}

// Comparison is what came of a Listing.
type Comparison struct {
	// Missing are instances in service that were not listed, and Different are entries that say something else than was
	// acknowledged last. Their pods are looked at again, and the calls are made that they need.
	Missing, Different int
	// Unknown are entries of pods of which this process knows nothing: they are gone, or it has not come to them yet.
	Unknown []registry.Entry
}

// found is an entry as one Listing had it.
type found struct {
	registry.Entry
	registry string
	from     *registryclient.Client
	// asOf is a time from which on the registry may have been told otherwise.
	asOf     time.Time
	confirms bool
}

func (f found) key() lifecycle.Recorded {
	return target{registry: f.registry, instance: f.Instance}.key()
}

func (f found) request(p *page) Request {
	return Request{NamespacedName: p.pod, UID: types.UID(f.UID)}
}

// Compare holds what a registry has against what it acknowledged, and has the pods looked at where the two differ. What
// was acknowledged after the registry was asked counts, and not the list. It calls no registry and may be called at any
// time.
func (r *PodReconciler) Compare(l Listing) Comparison {
	defer r.wake()
	settings := r.settings.Load()
	if settings.Registries[l.Registry] == l.From {
		r.claims.compare(l, r.clock.Now(), r.ledger.hasLeft)
	}
	return r.ledger.compare(l, settings)
}

// sort counts one entry. The caller holds the lock.
func (l *ledger) sort(f found, result *Comparison) {
	uid := types.UID(f.UID)
	switch p := l.pages[uid]; {
	case p != nil && l.doubt(p, f):
		result.Different++
	case p == nil && !l.closed[uid].After(f.asOf):
		l.listed[uid] = append(l.listed[uid], f)
		result.Unknown = append(result.Unknown, f.Entry)
	}
}

// hasLeft reports whether an entry that a list of that time has was acknowledged to be absent since.
func (l *ledger) hasLeft(e found) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := types.UID(e.UID)
	if p := l.pages[uid]; p != nil {
		return p.left[e.key()].After(e.asOf)
	}
	return l.closed[uid].After(e.asOf)
}

// compare goes through the entries and then through what is held.
//
// An entry that names another registry of the configuration was written under that name: both mean one server. It is
// there, and that registry's run looks after it. One that names a registry which the configuration no longer has was
// written before that was renamed, and one that names none by an older version: both are this registry's.
func (l *ledger) compare(listing Listing, settings *Settings) Comparison {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetListed(listing.Registry)
	var result Comparison
	asOf := listing.Asked.Add(-listing.Staleness)
	l.noteShown(listing, asOf)
	l.noteForeign(listing)
	listed := make(map[types.UID]map[lifecycle.Recorded]bool, len(listing.Entries))
	for _, e := range listing.Entries {
		writtenUnder := l.nameOf(e, listing.Registry, settings)
		if e.Registry == "" {
			e.Registry = listing.Registry
		}
		f := found{Entry: e, registry: listing.Registry, from: listing.From, asOf: asOf, confirms: listing.Confirms}
		uid := types.UID(e.UID)
		if listed[uid] == nil {
			listed[uid] = map[lifecycle.Recorded]bool{}
		}
		listed[uid][f.key()] = true
		if writtenUnder == listing.Registry {
			l.sort(f, &result)
		}
	}
	for uid, p := range l.pages {
		for in := range p.held {
			if in.Registry == listing.Registry && !listed[uid][in] && l.lose(p, uid, in, asOf) {
				result.Missing++
			}
		}
	}
	return result
}

// noteShown notes a list that has all that the leaders before this one have left. The caller holds the lock.
func (l *ledger) noteShown(listing Listing, asOf time.Time) {
	if l.leads.IsZero() {
		l.leads = listing.Asked
	}
	if asOf.Before(l.leads) || l.shown[listing.Registry] == listing.From {
		return
	}
	l.shown = maps.Clone(l.shown)
	l.shown[listing.Registry] = listing.From
}

// noteForeign notes which of the instances that calls were made for clients are given by somebody else's entry, and has
// the pods looked at where that is new or over. The caller holds the lock.
func (l *ledger) noteForeign(listing Listing) {
	listed := make(map[lifecycle.Recorded]bool, len(listing.Foreign))
	for _, e := range listing.Foreign {
		listed[found{Entry: e, registry: listing.Registry}.key()] = true
	}
	before, now := l.foreign[listing.Registry], map[lifecycle.Recorded]bool{}
	for uid, p := range l.pages {
		changed := p.wait.reason == ReasonAlsoRegistersItself
		for _, in := range slices.AppendSeq(slices.Collect(maps.Keys(p.held)), maps.Keys(p.left)) {
			if listed[in] {
				now[in] = true
			}
			changed = changed || in.Registry == listing.Registry && listed[in] != before[in]
		}
		if changed {
			l.doubtful = append(l.doubtful, Request{NamespacedName: p.pod, UID: uid})
		}
	}
	l.foreign = maps.Clone(l.foreign)
	l.foreign[listing.Registry] = now
}

// nameOf returns under which registry of the configuration an entry was written, and notes a registry that has another
// name now. The caller holds the lock.
func (l *ledger) nameOf(e registry.Entry, listed string, settings *Settings) string {
	if _, has := settings.Registries[e.Registry]; has {
		return e.Registry
	}
	if e.Registry != "" && l.renamed[e.Registry] != listed {
		l.renamed = maps.Clone(l.renamed)
		l.renamed[e.Registry] = listed
	}
	return listed
}

// forgetListed makes room for a new answer of the registry. The caller holds the lock.
func (l *ledger) forgetListed(name string) {
	for uid, all := range l.listed {
		var others []found
		for _, f := range all {
			if f.registry != name {
				others = append(others, f)
			}
		}
		if len(others) == 0 {
			delete(l.listed, uid)
		} else {
			l.listed[uid] = others
		}
	}
}

// noteClosed remembers a page that was closed, and forgets those that no list is old enough for, with or without one. The
// caller holds the lock.
func (l *ledger) noteClosed(uid types.UID, now time.Time) {
	if now.Sub(l.swept) > remembered {
		maps.DeleteFunc(l.closed, func(_ types.UID, at time.Time) bool { return now.Sub(at) > remembered })
		l.swept = now
	}
	l.closed[uid] = now
}

// doubt notes an entry that is not as it was acknowledged, and reports whether something was acknowledged at all. The
// caller holds the lock.
func (l *ledger) doubt(p *page, f found) bool {
	in := f.key()
	left, hasLeft := p.left[in]
	_, isHeld := p.held[in]
	switch {
	case isHeld && p.agrees(in, f):
		return false
	case !isHeld && hasLeft && (left.IsZero() || left.After(f.asOf)):
		return false // the reconciler is at it, or was done after the registry was asked
	}
	p.entries = append(p.entries, f)
	l.doubtful = append(l.doubtful, f.request(p))
	return isHeld || hasLeft
}

// agrees reports whether an entry is as it was acknowledged, or was acknowledged too late to be listed. Where a second call
// has not changed what is for clients, the registry has no place for it, and a third would not change it either.
func (p *page) agrees(in lifecycle.Recorded, f found) bool {
	h := p.held[in]
	switch {
	case h.since.After(f.asOf):
		return true
	case h.want != stateWanted(f.State):
		return false
	case h.want != lifecycle.InService:
		return true
	case h.instance.Equal(f.Instance):
		h.unlike = nil
	case h.unlike != nil && h.unlike.Equal(f.Instance):
		return true
	default:
		h.unlike = &f.Instance
	}
	p.held[in] = h
	return h.unlike == nil
}

func stateWanted(s registry.State) lifecycle.Want {
	if s == registry.InService {
		return lifecycle.InService
	}
	return lifecycle.OutOfService
}

// learn takes an entry for what it is: either no call of ours was made for it, and then it was made by a process before
// us, or our last call does not stand any more. The caller holds the ledger's lock.
func (p *page) learn(f found) {
	in := f.key()
	if p.settings.Registries[in.Registry] != f.from {
		return
	}
	if p.held[in].since.After(f.asOf) || p.left[in].After(f.asOf) {
		return
	}
	c := p.calls[in]
	if c == nil {
		p.calls[in] = &call{listed: &f}
		return
	}
	c.acknowledged = false
	if c.listed != nil {
		c.listed = &f // which is younger
	}
	if f.State == registry.InService {
		c.outSince = time.Time{} // clients are given it again, so a drain begins anew
	}
}

// disproves reports whether a call was made that counts more than the record, or a list that is younger says otherwise.
func (c *call) disproves(record lifecycle.Record) bool {
	switch {
	case c == nil:
		return false
	case c.listed == nil:
		return true
	default:
		return record.Want != stateWanted(c.listed.State) && !writtenAt(record).After(c.listed.asOf)
	}
}

// writtenAt is a time that the record was not written before: the acknowledgement where it names that, else the beginning of
// the pod's stay in its state.
func writtenAt(record lifecycle.Record) time.Time {
	if record.OutSince != nil {
		return *record.OutSince
	}
	began, _ := time.Parse(time.RFC3339, record.Stamp.Timestamp) // garbage is no time at all
	return began
}

// confirm takes what is listed in service for an acknowledgement of Register, so that a new leader need not register
// every pod again. It does so only in Normal, where no hook hangs on it: a pod that Kruise waits for costs the call.
func (r *PodReconciler) confirm(seen *observation) {
	pod := seen.pod()
	if appspub.LifecycleStateType(pod.Labels[appspub.LifecycleStateKey]) != appspub.LifecycleStateNormal ||
		pod.DeletionTimestamp != nil {
		return
	}
	for _, t := range seen.targets {
		c := seen.page.calls[t.key()]
		if c == nil || c.listed == nil || !c.listed.confirms || c.listed.State != registry.InService ||
			!c.listed.Instance.Equal(t.instance) {
			continue
		}
		asked := c.listed.asOf
		s := step{target: t, want: lifecycle.InService}
		seen.page.begun(s, asked).acknowledged = true
		r.ledger.hold(seen.page, s, asked)
		r.claims.acknowledged(t)
	}
}

// awaited holds the workers back until its channel is closed. It is a source without events.
type awaited struct{ done <-chan struct{} }

func (awaited) Start(context.Context, requestQueue) error { return nil }

func (a awaited) WaitForSync(ctx context.Context) error {
	if a.done == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
