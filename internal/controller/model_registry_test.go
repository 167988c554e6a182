package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// entry is one instance of one pod in one of the model's registries. The UID is the mark: pods never touch each other's entries.
type entry struct {
	uid types.UID
	in  lifecycle.Key
}

// effect is what a call does once it is carried out.
type effect struct {
	entry entry
	want  registry.State
	at    time.Time
}

func (e effect) String() string {
	return fmt.Sprintf("%s is %s", e.entry, e.want)
}

// modelRegistry is all registries, each of which may carry out a call later than it was asked, or without ever saying so.
type modelRegistry struct {
	// steer carries out a call for an application's entry.
	steer   func(effect)
	entries map[entry]registry.State
	// instances are as they were last asked for.
	instances map[entry]registry.Instance
	pending   []effect
	// given are the pods that clients were given once.
	given map[types.UID]bool
	// outSince is when a pod's last instance went out of rotation; missing where none ever was in.
	outSince map[types.UID]time.Time
	// downUntil is until when a registry does nothing but fail.
	downUntil map[string]time.Time
}

func newModelRegistry() *modelRegistry {
	return &modelRegistry{
		entries: map[entry]registry.State{}, instances: map[entry]registry.Instance{}, given: map[types.UID]bool{},
		outSince: map[types.UID]time.Time{}, downUntil: map[string]time.Time{},
	}
}

// land carries out what is due, in its order.
func (r *modelRegistry) land(now time.Time) []effect {
	slices.SortStableFunc(r.pending, func(a, b effect) int { return a.at.Compare(b.at) })
	var due []effect
	for len(r.pending) > 0 && !r.pending[0].at.After(now) {
		due = append(due, r.pending[0])
		r.carryOut(r.pending[0])
		r.pending = r.pending[1:]
	}
	return due
}

// set writes an entry as it is from now on, and says returns what it is.
func (r *modelRegistry) set(e entry, to registry.State) {
	if r.entries[e] = to; to == registry.Absent {
		delete(r.entries, e)
	}
}

func (r *modelRegistry) says(e entry) registry.State { return cmp.Or(r.entries[e], registry.Absent) }

// sorted are the entries that are so, in an order that is always the same.
func (r *modelRegistry) sorted(are func(entry) bool) []entry {
	all := slices.DeleteFunc(slices.Collect(maps.Keys(r.entries)), func(e entry) bool { return !are(e) })
	slices.SortFunc(all, func(a, b entry) int { return a.in.Compare(b.in) })
	return all
}

func (r *modelRegistry) carryOut(e effect) {
	if e.entry.isByApp() {
		r.steer(e)
		return
	}
	was := r.entries[e.entry]
	r.given[e.entry.uid] = r.given[e.entry.uid] || e.want == registry.InService
	r.set(e.entry, e.want)
	if was == registry.InService && e.want != registry.InService {
		r.outSince[e.entry.uid] = e.at
	}
}

// inService reports whether any instance of the pod is in rotation.
func (r *modelRegistry) inService(uid types.UID) bool {
	for e, says := range r.entries {
		if e.uid == uid && says == registry.InService {
			return true
		}
	}
	return false
}

// exactly reports whether these instances of the pod are in rotation and the registries know of no others.
func (r *modelRegistry) exactly(uid types.UID, instances []lifecycle.Key) bool {
	known := 0
	for e, says := range r.entries {
		if e.uid == uid {
			known++
			if says != registry.InService || !slices.Contains(instances, e.in) {
				return false
			}
		}
	}
	return known == len(instances)
}

// count is how many of the entries are so.
func (r *modelRegistry) count(is func(entry) bool) (count int) {
	for e := range r.entries {
		if is(e) {
			count++
		}
	}
	return count
}

// modelDriver is the manager's way to one of the registries. A call works, fails before or after its work, or times out and is
// carried out late or never.
type modelDriver struct {
	m      *model
	name   string
	writer lifecycle.Writer
}

// Register implements registry.Registry, as do the others.
func (d *modelDriver) Register(_ context.Context, in registry.Instance) error {
	d.m.turns.await(d.key(in))
	return d.m.call(d.entry(in), in, registry.InService)
}

func (d *modelDriver) FailOver(_ context.Context, in registry.Instance) error {
	d.m.turns.await(d.key(in))
	return d.m.call(d.entry(in), in, registry.OutOfService)
}

func (d *modelDriver) Deregister(_ context.Context, in registry.Instance) error {
	d.m.turns.await(d.key(in))
	return d.m.call(d.entry(in), in, registry.Absent)
}

func (d *modelDriver) entry(in registry.Instance) entry {
	return d.m.entryOf(types.UID(in.UID), d.key(in))
}

func (d *modelDriver) key(in registry.Instance) lifecycle.Key {
	return lifecycle.Key{Registry: d.name, Writer: d.writer, Service: lifecycle.Service(in.Service), Address: in.Address, Port: in.Port}
}

// askedDriver is one whose registry can be asked for one instance.
type askedDriver struct{ *modelDriver }

// Get implements registry.Getter.
func (d askedDriver) Get(_ context.Context, in registry.Instance) (registry.State, error) {
	m, e := d.m, d.entry(in)
	m.turns.await(d.key(in))
	if m.manager.dead {
		return "", errDead
	}
	if slices.ContainsFunc(m.registry.pending, func(p effect) bool { return p.entry == e && p.want != m.manager.called[e] }) {
		m.violatef("asked for %v while a call can still undo what the registry says", e)
	}
	if !m.calm && (m.isDown(e) || m.chance(20)) {
		return "", errors.New("refused")
	}
	delete(m.manager.doubted, e)
	says := m.registry.says(e)
	if m.errBeside(e) != nil {
		says = registry.Foreign
	}
	m.logf("registry: is asked for %s: %s", e, says)
	return says, nil
}

func (m *model) call(e entry, in registry.Instance, want registry.State) error {
	if m.manager.dead {
		return errDead
	}
	m.changes++
	m.manager.called[e], m.registry.instances[e] = want, in
	m.checkOrder(m.podOf(e.uid), e, want)
	if err := m.notRegistered(e, want); err != nil {
		return err
	}
	if want == registry.InService && m.beside(e) {
		return m.errBeside(e)
	}
	if p := m.podOf(e.uid); want == registry.InService {
		m.checkCold(e, in)
		m.checkTold(m.podOf(e.uid), e, in)
		if m.apps.by != nil {
			m.apps.found[e] = true
		}
		p.registeredIn, p.unarmed = m.manager.edits, m.manager.unarmed
	} else {
		p.unwritten = true
	}
	do := func(at time.Time) { m.registry.pending = append(m.registry.pending, effect{e, want, at}) }
	delete(m.manager.acked, e)
	if want != registry.InService {
		delete(m.manager.inSince, e)
	}
	if m.calm || !m.isDown(e) && !m.chance(m.failures) {
		return m.succeed(e, want, do)
	}
	m.manager.failed++
	if m.podOf(e.uid).unsettled = m.now.Add(2 * modelLateBound); m.apps.one == "" { // else it may be another key's call that is asked about
		m.manager.doubted[e] = true
	}
	m.logf("registry: the call for %s fails", effect{entry: e, want: want})
	err := errors.New("the call failed")
	switch m.rng.IntN(4) {
	case 0: // refused
	case 1: // done, and the answer lost
		do(m.now)
		m.pass(0)
	case 2: // timed out, and done late
		at := m.started().Add(modelTimeout + time.Duration(1+m.rng.IntN(int(modelLateBound-modelTimeout))))
		if m.pass(modelTimeout); at.After(m.now) {
			do(at)
		}
		err = context.DeadlineExceeded
	default: // timed out
		m.pass(modelTimeout)
		err = context.DeadlineExceeded
	}
	m.step()
	return err
}

// started is no later than the reconciler took for the beginning of the present call. The calls to several registries begin at once,
// and the model carries them out one after the other.
func (m *model) started() time.Time {
	if len(m.manager.all) > 1 {
		return m.manager.began
	}
	return m.now
}

func (m *model) succeed(e entry, want registry.State, do func(at time.Time)) error {
	var takes time.Duration
	if !m.calm {
		takes = time.Duration(1 + m.rng.Int64N(int64(m.takes)))
	}
	if at := m.now.Add(time.Duration(m.rng.Int64N(int64(takes) + 1))); e.isByApp() {
		do(m.now) // while the entry is there
		m.pass(0)
	} else {
		do(at)
	}
	if m.stepOf(m.lifespan / 5); m.manager.dead {
		return errDead // and the call is on its way still
	}
	m.pass(takes)
	m.logf("registry: %s", effect{entry: e, want: want})
	m.manager.acked[e] = true
	m.acknowledgedIn(e, want)
	m.podOf(e.uid).excused = m.podOf(e.uid).excused && want != registry.InService
	m.step()
	return m.errBeside(e)
}
