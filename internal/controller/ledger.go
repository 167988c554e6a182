package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

// ledger is what this process knows of its own calls, by pod UID. A restart begins an empty one, and that is the point:
// only a call of this process is known to have been acknowledged with nothing after it.
type ledger struct {
	mu    sync.Mutex
	pages map[types.UID]*page
	// births are pods that came while this process was watching and that nobody has opened a page for yet.
	births map[types.UID]bool
	// losers are pods of which a registry has lost an instance.
	losers []Request
	// doubtful are pods of which a registry lists something that it was not told last.
	doubtful []Request
	// listed are entries of pods that have no page.
	listed map[types.UID][]found
	// leads is when the first list was asked for, by a manager that led: all calls of those before it had ended. shown are
	// the registries that were listed as they were at a time after that. The map is replaced and never changed.
	leads time.Time
	shown map[string]*registryclient.Client
	// renamed holds, by the names of registries that the configuration no longer has, what entries were found in that name
	// them. The map is replaced and never changed.
	renamed map[string]string
	// foreign are, for each registry, the instances that clients are given by an entry which no Rollcall has written, as far
	// as its last list tells. Both maps are replaced and never changed.
	foreign map[string]map[lifecycle.Recorded]bool
	// closed is when the page of a pod that calls were made for was closed, and swept when the old ones were last forgotten.
	closed map[types.UID]time.Time
	swept  time.Time
}

// page is the ledger of one pod. The reconciler is its only user but for the fields under the ledger's lock: the queue
// never hands one pod to two workers.
type page struct {
	// settings are those with whose registries the calls were made.
	settings *Settings
	calls    map[lifecycle.Recorded]*call
	// fromBirth: the pod came while this process was watching. No other process has registered it, unless this one's watch
	// lagged when it began to lead.
	fromBirth bool
	// shown, renamed and foreign are the ledger's.
	shown   map[string]*registryclient.Client
	renamed map[string]string
	foreign map[string]map[lifecycle.Recorded]bool
	// found: the pod was in the cache after the page was opened, so its departure is sure to be noted here.
	found bool
	// lingers: the pod is dying and has lost the label that we watch for, so no event tells whether it was freed.
	lingers bool
	// recalled: what the record holds was noted.
	recalled bool
	// skipRefused is why the pod's annotation to skip a hook was last refused: an Event of it came.
	skipRefused string
	// written is the resource version of our last write. A cache that is behind it has not seen our own change.
	written string

	// Under the ledger's lock.
	pod  types.NamespacedName
	last *corev1.Pod // the pod as it was last seen, once it is gone from the cache
	wait wait
	held map[lifecycle.Recorded]held
	// left is when it was acknowledged that an instance is absent; zero while the call for that is under way, or failed.
	left map[lifecycle.Recorded]time.Time
	// missing are instances in service that a registry has lost.
	missing []lifecycle.Recorded
	// entries are those that a registry listed and this process does not know that way.
	entries []found
}

// call is the last call for one instance and what is known of its outcome.
type call struct {
	want lifecycle.Want
	// instance is what the call told, weight and metadata included.
	instance registry.Instance
	// acknowledged is false while the outcome is unknown.
	acknowledged bool
	// began is when the call was made, and what counts against late ones: its work may be done long before its answer
	// comes, and a late call's in between.
	began time.Time
	// outSince is the acknowledgement that took the instance out, with no Register tried since.
	outSince time.Time
	// adopted is outSince as a record had it, by the clock of the manager that wrote it, and from when the drain counts.
	adopted struct{ outSince, counted time.Time }
	// doubtful: a call was answered by an error, so its outcome is unknown, and the registry has not confirmed since what it
	// acknowledged after that.
	doubtful bool
	// late holds, for each want of a call that timed out, until when it may still land.
	late map[lifecycle.Want]time.Time
	// listed is all that is known of an instance that no call was made for, but that its registry has; nil after a call.
	listed *found
	// notBefore is when the registry said to come back, and told what to say until then: an event must not bring us sooner.
	notBefore time.Time
	told      wait
}

func newLedger() *ledger {
	return &ledger{
		pages: map[types.UID]*page{}, births: map[types.UID]bool{},
		listed: map[types.UID][]found{}, closed: map[types.UID]time.Time{}, shown: map[string]*registryclient.Client{},
		renamed: map[string]string{}, foreign: map[string]map[lifecycle.Recorded]bool{},
	}
}

// open returns the pod's page, a new one where there is none. Nothing is known of a registry that these settings have and
// those before them had not.
func (l *ledger) open(req Request, settings *Settings) *page {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pages[req.UID]
	if p == nil {
		p = l.newPage(req)
		p.fromBirth = l.births[req.UID]
		delete(l.births, req.UID)
	}
	if p.settings != settings {
		p.turnTo(settings)
	}
	p.reread()
	p.shown, p.renamed, p.foreign = l.shown, l.renamed, l.foreign
	return p
}

// newPage makes the pod's page, with what was listed of it before. The caller holds the lock.
func (l *ledger) newPage(req Request) *page {
	p := &page{pod: req.NamespacedName, calls: map[lifecycle.Recorded]*call{}, entries: l.listed[req.UID]}
	l.pages[req.UID] = p
	delete(l.listed, req.UID)
	return p
}

func (l *ledger) close(uid types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pages[uid]; p != nil && len(p.calls) > 0 {
		l.noteClosed(uid, now)
	}
	delete(l.pages, uid)
	delete(l.listed, uid)
}

// closeUnlessDeparted closes the page of a pod that was never found, unless its departure was noted meanwhile.
func (l *ledger) closeUnlessDeparted(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pages[uid]; p != nil && p.last == nil {
		delete(l.pages, uid)
	}
}

// arrived notes a pod that came into the cache; born if it came while this process was watching. Arrivals and departures
// are noted in the order of the cache's events, which a reconcile does not know.
func (l *ledger) arrived(uid types.UID, born bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pages[uid]; p != nil {
		p.last = nil
		return
	}
	if born {
		l.births[uid] = true
	}
}

// departed notes a pod that is gone from the cache, so that what it leaves behind can be undone. A pod without a page was
// not ours, or is one that another process put in service and this one had not come to yet: its record tells.
func (l *ledger) departed(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.births, pod.UID)
	p := l.pages[pod.UID]
	if p == nil && (lifecycle.RecordOf(pod).Exists() || len(l.listed[pod.UID]) > 0) {
		p = l.newPage(requestFor(pod))
	}
	if p != nil {
		p.last = pod
	}
}

// dying notes a pod that is on its way out and that the cache has not, since it lacks the label that we watch for.
func (l *ledger) dying(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pages[pod.UID] == nil {
		l.newPage(requestFor(pod)).last = pod
	}
}

// lookAt notes a pod that is in doubt.
func (l *ledger) lookAt(req Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtful = append(l.doubtful, req)
}

// lastSeen returns the pod that is gone from the cache, or nil.
func (l *ledger) lastSeen(p *page) *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.last
}

// waitOf returns why the pod waited when it was last reported.
func (l *ledger) waitOf(p *page) wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.wait
}

// setWait notes why the pod waits and returns why it did before.
func (l *ledger) setWait(p *page, now wait) wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := p.wait
	p.wait = now
	return before
}

// departures returns the pods whose traces are still to be undone.
func (l *ledger) departures() []*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pods []*corev1.Pod
	for _, p := range l.pages {
		if p.last != nil {
			pods = append(pods, p.last)
		}
	}
	return pods
}

func (l *ledger) waits() []wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waits []wait
	for _, p := range l.pages {
		if p.wait.reason != "" {
			waits = append(waits, p.wait)
		}
	}
	return waits
}

// turnTo keeps which instances there were and forgets what a registry said of them that is another one now. The servers
// may be the same all the same, so what may still land there stays known. What one said last that there is no more stays
// known too: the pods that have left it need not wait for it. A new client of the same servers is asked at once, since it
// may be the old one's credentials that were told to wait.
func (p *page) turnTo(settings *Settings) {
	var before map[string]*registryclient.Client
	if p.settings != nil {
		before = p.settings.Registries
	}
	p.settings = settings
	for in, c := range p.calls {
		now, there := settings.Registries[in.Registry]
		was := before[in.Registry]
		switch {
		case !there || was == now:
		case was != nil && was.Server() == now.Server():
			c.notBefore, c.told = time.Time{}, wait{}
		default:
			p.calls[in] = &call{doubtful: c.doubtful, late: c.late}
		}
	}
}

// begun notes that a call is about to be made: from here on its outcome is unknown.
func (p *page) begun(s step, now time.Time) *call {
	in := s.key()
	c := p.calls[in]
	if c == nil {
		c = &call{}
		p.calls[in] = c
	}
	c.want, c.instance, c.acknowledged, c.began, c.listed = s.want, s.instance, false, now, nil
	c.notBefore, c.told = time.Time{}, wait{}
	if s.want == lifecycle.InService {
		c.outSince = time.Time{}
	}
	return c
}

// toldToWait returns why no call may be made for the step yet, by the registry's own word; empty where one may. What it
// said of another change does not count: a registry that takes no more instances must not keep a deleted pod in.
func (p *page) toldToWait(s step, now time.Time) wait {
	c := p.calls[s.key()]
	if c == nil || c.want != s.want || !now.Before(c.notBefore) {
		return wait{}
	}
	told := c.told
	told.after = c.notBefore.Sub(now)
	return told
}

func (c *call) succeeded(now time.Time) {
	c.acknowledged = true
	// A Register that was still on its way can have put it in again since the last acknowledgement.
	_, wasIn := c.late[lifecycle.InService]
	if c.want != lifecycle.InService && (wasIn || c.outSince.IsZero()) {
		c.outSince = now
	}
	c.landed(c.began)
}

// landed forgets the calls that could only land before something that settled what they did began.
func (c *call) landed(began time.Time) {
	for want, until := range c.late {
		if !began.Before(until) {
			delete(c.late, want)
		}
	}
}

// timedOut notes that the call may still be carried out until then.
func (c *call) timedOut(until time.Time) {
	if c.late == nil {
		c.late = map[lifecycle.Want]time.Time{}
	}
	c.late[c.want] = until
}

// unsettledUntil returns until when a call that timed out may still undo this one; zero where none can.
func (c *call) unsettledUntil() time.Time {
	var latest time.Time
	for other, until := range c.late {
		if other != c.want && until.After(latest) {
			latest = until
		}
	}
	return latest
}

// stands reports whether the last call was acknowledged and wanted the same.
func (c *call) stands(want lifecycle.Want) bool { return c != nil && c.acknowledged && c.want == want }

// said reports whether the call told what the step tells. Weight and metadata are of no use to those who are not given
// the instance.
func (c *call) said(s step) bool {
	return c.stands(s.want) && (s.want != lifecycle.InService || c.instance.Equal(s.instance))
}

// certain reports whether the registry has acknowledged the step, and nothing can have undone it or still will.
func (p *page) certain(s step) bool {
	c := p.calls[s.key()]
	return c.said(s) && c.settled() && !p.asks(s.key())
}

// settled reports whether the call began after everything that could still have undone it.
func (c *call) settled() bool { return !c.began.Before(c.unsettledUntil()) }
