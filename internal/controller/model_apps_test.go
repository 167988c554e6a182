package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// modelApps are the applications of a walk in which they register themselves: each writes an entry for each of its services, at one of
// its pod's addresses, at a moment of its own. It may lose the entry, write it again, or put it back into rotation, and it may do
// so while Rollcall writes one at the same place. A registry has at most one application at a place.
type modelApps struct {
	// by has the registries whose entries the applications write, by the configuration; nil in a walk without such applications.
	by map[string]bool
	// one is set if a key is not an entry.
	one oneEntry
	// remembers: an entry that was taken out is out of rotation also once its application has written it again.
	remembers bool
	out       map[entry]bool
	// told is what a manager knows of an entry at most, by a call that was carried out or by an answer.
	told map[entry]registry.State
	// leftAt is when an application took its pod's entry out itself.
	leftAt map[types.UID]time.Time
	// byList are those that a manager was told of by a list alone: no more than by which a configuration it was made.
	byList map[entry]bool
	// listed are those that the last list of their registry had.
	listed map[entry]bool
	// found are the entries that a manager has ever known to be there.
	found map[entry]bool
	// back are those in rotation that the application itself has put there, and no call since.
	back map[entry]bool
}

// registerThemselves has the applications of this walk do so, in some of the registries.
func (m *model) registerThemselves() {
	m.apps = modelApps{
		by: map[string]bool{}, remembers: m.chance(50), out: map[entry]bool{}, told: map[entry]registry.State{}, found: map[entry]bool{},
		back: map[entry]bool{}, listed: map[entry]bool{}, byList: map[entry]bool{}, leftAt: map[types.UID]time.Time{},
	}
	for i, name := range m.manager.all {
		m.apps.by[name] = i == 0 || m.chance(50)
	}
	m.chooseOneEntry()
}

// changeHands has the configuration leave a registry's entries to the applications, or to Rollcall.
func (m *model) changeHands(name string) {
	m.apps.by[name] = !m.apps.by[name]
	m.logf("someone: has the applications write the entries in %q: %t", name, m.apps.by[name])
	m.configure(m.manager.there...)
	m.edited()
}

func (e entry) String() string {
	return fmt.Sprintf("%s as %s at %s in %s", e.uid, e.in.Service, e.in.Address, e.in.Source())
}

// isByApp reports whether an application writes the entry, and byApp returns the application's at the same place.
func (e entry) isByApp() bool { return e.in.ByApp() }

func (e entry) byApp() entry { return entry{e.uid, e.in.By(lifecycle.Application)} }

// appMoves is what the application of a pod does in a moment. When all have calmed down, it does what it is configured to.
func (m *model) appMoves(p *modelPod) {
	if m.apps.by == nil {
		return
	}
	restarted := p.appRuns != p.running
	if p.appRuns = p.running; restarted && m.apps.one != oneCaller && m.chance(30) {
		p.appAt = m.rng.IntN(2)
	}
	wanted := m.entriesOfApp(p)
	for _, e := range m.registry.sorted(func(e entry) bool { return e.uid == p.uid && e.isByApp() }) {
		is := slices.Contains(wanted, e)
		// It never has two at one time: Rollcall steers the first that it finds, and warns of the other.
		another := p.api != nil && p.api.Status.PodIP != "" && e.in.Address == addressesOf(p.api)[1-p.appAt]
		switch {
		case another, is && restarted && m.chance(50), is && !m.calm && m.chance(4), !is && (m.calm || m.chance(25)):
			m.appDoes(p, e, registry.Absent, "has no entry any more")
		case is && !m.calm && m.registry.entries[e] == registry.OutOfService && m.chance(8):
			delete(m.apps.out, e)
			m.appDoes(p, e, registry.InService, "is put back by someone")
		}
	}
	for _, e := range wanted {
		_, there := m.registry.entries[e]
		switch {
		case there || !m.calm && m.chance(50):
		case m.apps.out[e]:
			m.appDoes(p, e, registry.OutOfService, "registers, and stays out")
		default:
			m.appDoes(p, e, registry.InService, "registers")
		}
	}
}

// entriesOfApp are those that the pod's application keeps. One that was told to leave that to Rollcall may still do so.
func (m *model) entriesOfApp(p *modelPod) (wanted []entry) {
	if p.api == nil || p.api.Status.PodIP == "" || isFinished(p.api) {
		return nil
	}
	address := addressesOf(p.api)[p.appAt]
	for _, name := range m.manager.registries {
		for _, in := range m.modelServices(p.api, name) {
			in.Address = address
			e := m.entryOf(p.uid, in.By(lifecycle.Application))
			if (m.apps.by[name] || p.stubborn && !m.calm) && !slices.Contains(wanted, e) {
				wanted = append(wanted, e)
			}
		}
	}
	return wanted
}

// addressesOf are the pod's: its IP, and another.
func addressesOf(pod *corev1.Pod) []string {
	return []string{pod.Status.PodIP, pod.Status.PodIPs[1].IP}
}

// appDoes has something other than Rollcall change an application's entry.
func (m *model) appDoes(p *modelPod, e entry, to registry.State, what string) {
	m.pass(time.Millisecond) // a manager knows by the time which of two answers is the later one
	was := m.registry.entries[e]
	m.logf("application: %s %s: %s", p.uid, what, e)
	if m.registry.set(e, to); was == registry.InService && to != was && m.apps.told[e] == was {
		m.registry.outSince[p.uid], m.apps.leftAt[p.uid] = m.now, m.now
	}
	m.apps.back[e] = to == registry.InService
	p.disturbed, p.registeredIn = true, -1
	m.changes++
}

// steer carries out a call for an application's entry. It changes nothing but whether clients are given it.
func (m *model) steer(e effect) {
	was, there := m.registry.entries[e.entry]
	knew, knows := m.apps.told[e.entry]
	switch {
	case e.want == registry.InService && (there || m.apps.one == oneCaller):
		delete(m.apps.out, e.entry)
		m.registry.set(e.entry, registry.InService)
	case there:
		m.apps.out[e.entry] = m.apps.remembers
		m.registry.set(e.entry, registry.OutOfService)
	case e.want == registry.Absent:
		delete(m.apps.out, e.entry)
	}
	if was == registry.InService && e.want != was && (!knows || knew == was) {
		m.registry.outSince[e.entry.uid] = e.at
	}
	delete(m.apps.back, e.entry)
	delete(m.apps.leftAt, e.entry.uid)
	m.tell(e.entry, e.want == registry.InService)
}

// tell has the manager know what an application's entry is, and that it is there where the answer says so.
func (m *model) tell(e entry, shows bool) registry.State {
	state := m.registry.says(e)
	m.apps.told[e] = state
	delete(m.apps.byList, e)
	m.apps.found[e] = m.apps.found[e] || shows && state != registry.Absent
	m.registry.given[e.uid] = m.registry.given[e.uid] || shows && state == registry.InService
	return state
}

// untold reports whether an application has changed its entry since a manager last knew of it.
func (m *model) untold(e entry) bool {
	return e.isByApp() && cmp.Or(m.apps.told[e], registry.Absent) != m.registry.says(e)
}

// inRotation are the entries by which clients are given the pod, as far as a manager can know. What an application writes although that is
// left to Rollcall counts only at Rollcall's own places, while its container runs. Once that has ended, nobody looks elsewhere for it.
func (m *model) inRotation(p *modelPod) []entry {
	first, runs := p.last().Status.PodIP, !isFinished(p.last())
	return m.registry.sorted(func(e entry) bool {
		by, at := m.apps.by[e.in.Registry], e.in.Address == first
		seen := !e.isByApp() || by && at || by && runs || at && runs
		return e.uid == p.uid && m.registry.entries[e] == registry.InService && seen && !m.untold(e) && !m.leftBehind(p, e) && !m.isNoMore(p, e)
	})
}

// leftBehind reports whether an application has left an entry at a former address of its pod, of which only a record tells that it was
// the pod's: anyone can write that.
func (m *model) leftBehind(p *modelPod, e entry) bool {
	_, called := m.manager.called[e]
	return e.isByApp() && !called && !slices.Contains(addressesOf(p.last()), e.in.Address)
}

// suspects reports whether a manager has been told that clients are given an entry of the pod's application, which may have gone since.
func (m *model) suspects(p *modelPod) bool {
	for e, told := range m.apps.told {
		if e.uid == p.uid && (told == registry.InService || m.apps.listed[e]) {
			return true
		}
	}
	return false
}

// putInRotation reports whether clients are given the pod, and not by its application's own doing.
func (m *model) putInRotation(p *modelPod) bool {
	for e, says := range m.registry.entries {
		if e.uid == p.uid && says == registry.InService && !m.apps.back[e] && !m.leftBehind(p, e) && !m.isNoMore(p, e) {
			return true
		}
	}
	return false
}

// checkForgotten: no registry remembers an application of a pod that is gone, so that the next one at its address starts in rotation.
func (m *model) checkForgotten(p *modelPod) {
	for e, out := range m.apps.out {
		if e.uid == p.uid && out {
			m.violatef("%s is gone, and %s remembers that its application at %s is out", p.uid, e.in.Registry, e.in.Address)
		}
	}
}

// gives reports whether clients are given an instance of the pod; what an application has changed since a manager last knew is no
// manager's fault.
func (m *model) gives(p *modelPod, seen *corev1.Pod, in lifecycle.Key) bool {
	e := m.entryOf(p.uid, in)
	if !e.isByApp() {
		return m.registry.entries[e] == registry.InService
	}
	return slices.ContainsFunc(addressesOf(seen), func(address string) bool {
		e.in.Address = address
		return m.registry.entries[e] == registry.InService || m.untold(e)
	})
}

// unfound returns an instance that Rollcall let go although no manager ever found its entry, of a pod that was ready.
func (m *model) unfound(p *modelPod, seen *corev1.Pod) (unfound lifecycle.Key) {
	if m.apps.by == nil || p.readyIn < 0 || p.view < p.readyIn {
		return unfound
	}
	for _, in := range m.instancesOf(seen) {
		e := m.entryOf(p.uid, in)
		known := !e.isByApp()
		for other := range m.apps.found {
			moved := other.uid == p.uid && !slices.ContainsFunc(m.instancesOf(seen), func(in lifecycle.Key) bool {
				return samePlaceButAddress(in, other.in) && slices.Contains(addressesOf(seen), other.in.Address)
			})
			known = known || m.apps.found[other] && (moved || other.uid == p.uid && samePlaceButAddress(in, other.in))
		}
		if !known {
			return in
		}
	}
	return unfound
}

func samePlaceButAddress(a, b lifecycle.Key) bool {
	a.Address = b.Address
	return a == b
}

// glance asks for the applications' entries, as resync does.
func (m *model) glance() {
	for _, name := range m.manager.there {
		steered := slices.Concat(m.manager.Tracker.Steered(name, true), m.manager.Tracker.Steered(name, false))
		app := modelDriver{m, name, lifecycle.Application}
		slices.SortFunc(steered, func(a, b registry.Instance) int { return app.entry(a).in.Compare(app.entry(b).in) })
		for _, in := range steered {
			if m.calm || !m.chance(20) {
				target := tracker.Target{Registry: name, Writer: lifecycle.Application, Instance: in}
				m.manager.Tracker.Answered(target, m.tell(app.entry(in), true), m.now)
			}
		}
	}
}

// foreign are the applications' entries in rotation, as the list of a registry has them.
func (m *model) foreign(name string) (foreign []registry.Entry) {
	maps.DeleteFunc(m.apps.listed, func(e entry, _ bool) bool { return e.in.Registry == name })
	counts := func(e entry) bool { // at the places of Rollcall's own entries
		return e.in.Registry == name && !m.apps.by[name] && slices.Contains(m.manager.registries, name) &&
			e.in.Address == m.podOf(e.uid).last().Status.PodIP
	}
	tell := func(e entry) {
		_, told := m.apps.told[e]
		byList := !told || m.apps.byList[e]
		m.tell(e, false)
		m.apps.byList[e] = byList
	}
	for e := range m.apps.told {
		if counts(e) {
			tell(e)
		}
	}
	for _, e := range m.registry.sorted(entry.isByApp) {
		if e.in.Registry == name && m.registry.entries[e] == registry.InService {
			if m.apps.listed[e] = true; counts(e) {
				tell(e)
			}
			at := registry.Instance{Service: string(e.in.Service), Address: e.in.Address, Port: e.in.Port}
			foreign = append(foreign, registry.Entry{Instance: at, State: registry.Foreign})
		}
	}
	return foreign
}

// beside reports whether clients are given an application's entry at the place of an entry that Rollcall writes, and errBeside is the
// answer of a registry that tells a manager.
func (m *model) beside(e entry) bool {
	return !e.isByApp() && m.registry.entries[e.byApp()] == registry.InService
}

func (m *model) errBeside(e entry) error {
	if e.isByApp() || m.apps.by == nil || m.apps.by[e.in.Registry] && !m.beside(e) { // which tells no more than that
		return nil
	}
	if m.tell(e.byApp(), false) != registry.InService {
		return nil
	}
	return registry.ForeignEntry(errors.New("the application registers itself"))
}

// steeredDriver is one whose registry has entries of applications that can be steered.
type steeredDriver struct{ askedDriver }

// AppEntries implements registry.AppEntrySteerer.
func (d steeredDriver) AppEntries() registry.AppRegistry {
	return appDriver{&modelDriver{d.m, d.name, lifecycle.Application}}
}

// appDriver is the manager's way to applications' entries.
type appDriver struct{ *modelDriver }

// Get implements registry.Getter.
func (d appDriver) Get(_ context.Context, in registry.Instance) (registry.State, error) {
	m, e := d.m, d.entry(in)
	m.turns.await(d.key(in))
	if m.manager.dead {
		return "", errDead
	}
	if !m.calm && m.chance(20) {
		m.podOf(e.uid).unsettled = m.now.Add(modelLateBound)
		return "", errors.New("refused")
	}
	if !slices.ContainsFunc(m.registry.pending, func(p effect) bool { return p.entry == e && p.want != m.manager.called[e] }) {
		delete(m.manager.doubted, e)
	}
	state := m.tell(e, true)
	if state == registry.Absent && m.apps.one == oneCaller { // an application that answers has left
		state, m.apps.found[e] = registry.OutOfService, true
	}
	m.logf("registry: is asked for %s: %s", e, state)
	return state, nil
}

// notRegistered is why an application's entry can't be put in rotation: there is none.
func (m *model) notRegistered(e entry, want registry.State) error {
	if _, there := m.registry.entries[e]; there || !e.isByApp() || want != registry.InService || m.apps.one == oneCaller {
		return nil
	}
	m.tell(e, true)
	return registry.NotRegistered(errors.New("no application has registered there"))
}

// checkOrder is I9 and the order of things to leave: of a pod that serves, nothing goes but what it departs from, and that not
// before it is in service everywhere that it belongs.
func (m *model) checkOrder(p *modelPod, e entry, want registry.State) {
	seen := p.versions[p.view] // a patch shows the manager no later status
	if want == registry.InService || seen == nil || seen.DeletionTimestamp != nil || isFinished(seen) || p.mayEnd || !m.hasAddress(seen, e.in.Address) {
		return
	}
	ready := isReady(seen) && !isTrue(seen, corev1.DisruptionTarget) && len(seen.OwnerReferences) > 0 // or it was detached
	serves := ready && slices.Contains([]appspub.LifecycleStateType{
		appspub.LifecycleStateNormal, appspub.LifecycleStateUpdated, appspub.LifecycleStatePreparingNormal}, stateOf(seen))
	if !serves {
		return
	}
	for _, in := range m.instancesOf(seen) {
		if in == e.in {
			m.violatef("I9: %s is %s and ready, and is taken out of %v", p.uid, stateOf(seen), in)
		}
		if !m.gives(p, seen, in) {
			m.violatef("I9: %s leaves %v, and is not in service in %v", p.uid, e.in, in)
		}
	}
}

func isTrue(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}
