package lifecycle

import (
	"errors"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rules are the manager's, and what a mutant has instead.
type rules struct {
	decide func(Input) Decision
	patch  func([]byte) []byte // nil leaves it

	trustRecord       bool // the record is the truth
	releaseUnasked    bool // hooks flip without an acknowledgement
	ignoreLate        bool // an acknowledgement settles whatever timed out before
	settleByAnswer    bool // a call settles by when it was answered, not by when it began
	forgetDrain       bool // a restart begins without
	keepFormer        bool // a former address is not taken out
	unbornNeverIn     bool // a pod without a record never was in service
	forgetGone        bool // a pod that is gone leaves nothing
	nextActsAtOnce    bool // the next leader does not wait for the lease
	armAfterRegister  bool
	callOnceForAll    bool // one acknowledged instance stands for all
	noteOnlySuccesses bool // a call that failed did nothing
}

var (
	errCrash = errors.New("the manager died")
	errCall  = errors.New("the call failed")
)

// manager is a model of the controller: the converge rules of the design in their shortest form, around Decide and Patch.
type manager struct {
	w       *world
	rules   rules
	t       testingT
	upSince time.Time
	downFor time.Time // until then, nobody leads
	pages   map[types.UID]*modelPage
	edits   int       // the edit of the hooks that the present visit rests on
	unarmed []Handler // that the present visit can't arm before it puts the pod in service
}

type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// modelPage is what this process knows of a pod. All of it is lost when it dies.
type modelPage struct {
	view  int // the version seen last: a cache lags, and never goes back
	born  bool
	calls map[Recorded]*modelCall
	done  bool // gone, and undone
}

type modelCall struct {
	want     Want
	acked    bool
	begunAt  time.Time // of the call that was acknowledged: what lands before it began can't undo it
	outSince time.Time
	late     map[Want]time.Time
}

func newManager(t testingT, w *world, r rules) *manager {
	m := &manager{w: w, rules: r, t: t, upSince: w.now.Add(-1), pages: map[types.UID]*modelPage{}}
	w.remembers = func(e entry) bool { return m.pages[e.uid] != nil && m.pages[e.uid].calls[e.in] != nil }
	return m
}

func modelInstances(pod *corev1.Pod) []Recorded {
	if pod.Status.PodIP == "" {
		return nil
	}
	return []Recorded{{Registry: "default", Service: "admin", Address: pod.Status.PodIP, Port: 9090}, {Registry: "default", Service: "web", Address: pod.Status.PodIP, Port: 8080}}
}

// reconcile is one visit of the manager to one pod. It dies anywhere.
func (m *manager) reconcile(p *modelPod) {
	if m.w.now.Before(m.downFor) {
		if p.api == nil {
			p.orphaned = p.orphaned || m.pages[p.uid] == nil
		}
		return
	}
	if errors.Is(m.visit(p), errCrash) {
		m.die()
	}
}

// die loses all that was only in memory. The lease keeps the next one out until every call of this one has landed.
func (m *manager) die() {
	w := m.w
	w.logf("rollcall: dies")
	for _, p := range w.pods {
		if page := m.pages[p.uid]; page == nil || !page.done {
			p.orphaned = true
		}
	}
	m.pages = map[types.UID]*modelPage{}
	m.downFor = w.now.Add(modelLateBound + time.Duration(w.rng.IntN(5000))*time.Millisecond)
	if m.rules.nextActsAtOnce {
		m.downFor = w.now
	}
	m.upSince = m.downFor
}

// step is where others act, and where the manager may die.
func (m *manager) step() error { return m.stepOf(m.w.lifespan) }

// stepOf is a step that the manager dies in once in so many times.
func (m *manager) stepOf(times int) error {
	m.w.others()
	if !m.w.calm && m.w.rng.IntN(times) == 0 {
		return errCrash
	}
	return nil
}

func (m *manager) visit(p *modelPod) error {
	page, pod := m.observe(p)
	if pod == nil {
		return m.depart(p, page)
	}
	hooks := HooksOf(m.w.workload, testOwnership())
	m.edits = m.w.edits
	in := Input{Pod: pod, Hooks: hooks, Record: RecordOf(pod), Ownership: testOwnership(), Unready: m.w.unready, Panic: m.w.panics()}
	in.Guard = GuardOf(GuardFacts{Wanted: m.w.guard, Dying: pod.DeletionTimestamp != nil, Hooked: hooks.Any()})
	if !in.Managed() && len(page.calls) == 0 {
		return nil
	}
	d := m.rules.decide(in)
	if !d.Arm.Empty() && !m.rules.armAfterRegister {
		armed, err := m.patch(p, pod, hooks, d.Arm, nil)
		if err != nil || armed == nil {
			return err
		}
		in.Pod, in.Record = armed, RecordOf(armed)
		d = m.rules.decide(in)
	}
	m.unarmed = map[Row][]Handler{RowPreparingNormal: hooks.PreNormal, RowUpdated: hooks.InPlaceUpdate}[d.Row]
	record, released, err := m.converge(p, page, in, d)
	if errors.Is(err, errCrash) {
		return err
	}
	edit := d.Then
	if m.rules.armAfterRegister {
		edit.Set = union(edit.Set, d.Arm.Set)
	}
	if !released && !m.rules.releaseUnasked {
		edit = page.out(d)
	}
	if edit.Empty() && in.Pod.DeletionTimestamp != nil {
		return nil
	}
	_, err = m.patch(p, in.Pod, hooks, edit, record)
	return err
}

// out is what is written once a registry was asked to take the pod out, whatever it answered.
func (p *modelPage) out(d Decision) Edit {
	for _, c := range p.calls {
		if c.want == OutOfService || c.want == Absent {
			return d.Out
		}
	}
	return Edit{}
}

// observe returns the pod as a cache that may lag shows it, or nil for one that is gone.
func (m *manager) observe(p *modelPod) (*modelPage, *corev1.Pod) {
	latest := len(p.versions) - 1
	page := m.pages[p.uid]
	if page == nil {
		page = &modelPage{view: latest, calls: map[Recorded]*modelCall{}, born: p.versions[0].CreationTimestamp.After(m.upSince)}
		m.pages[p.uid] = page
		if p.api == nil {
			p.orphaned, page.done = true, true // it was gone before this process looked
		}
	}
	if m.w.calm || m.w.chance(70) {
		page.view = latest
	} else {
		page.view += m.w.rng.IntN(latest - page.view + 1)
	}
	return page, p.versions[page.view]
}

// depart undoes what a pod that is gone left. It goes by UID.
func (m *manager) depart(p *modelPod, page *modelPage) error {
	if page.done || m.rules.forgetGone {
		return nil
	}
	in := Input{Pod: p.last(), Record: RecordOf(p.last())}
	_, released, err := m.converge(p, page, in, Decision{Row: RowGone, Want: Absent})
	page.done = released && err == nil
	return err
}

// target is one instance and what the registry shall say of it.
type target struct {
	in   Recorded
	want Want
}

// targets takes out first what the pod no longer is.
func (m *manager) targets(page *modelPage, in Input, want Want) []target {
	var targets []target
	instances := modelInstances(in.Pod)
	former := slices.Clone(in.Record.Instances)
	for instance := range page.calls {
		former = append(former, instance)
	}
	slices.SortFunc(former, func(a, b Recorded) int {
		return compareHandlers(label(a.Service, a.Address), label(b.Service, b.Address))
	})
	for _, instance := range slices.Compact(former) {
		if !slices.Contains(instances, instance) && !m.rules.keepFormer {
			targets = append(targets, target{instance, Absent})
		}
	}
	for _, instance := range instances {
		targets = append(targets, target{instance, want})
	}
	return targets
}

// converge makes the registry say what it shall. Released tells that the hooks may follow.
func (m *manager) converge(p *modelPod, page *modelPage, in Input, d Decision) (record *Record, released bool, err error) {
	if d.Want == Keep {
		return nil, true, nil
	}
	released = true
	for i, t := range m.targets(page, in, d.Want) {
		if m.rules.callOnceForAll && i > 0 {
			break
		}
		settled, err := m.ensure(p, page, in, t)
		if err != nil {
			return nil, false, err
		}
		released = released && settled
	}
	if !released || len(page.calls) == 0 && !in.Record.Exists() {
		return nil, released, nil
	}
	outSince := latestOut(page)
	r := NewRecord(in.Pod, in.Hooks, d.Want, modelInstances(in.Pod), outSince)
	drains := d.Row == RowPreparingDelete || d.Row == RowPreparingUpdate
	if drains && outSince != nil && m.w.now.Before(outSince.Add(m.w.drain)) {
		return &r, false, nil
	}
	return &r, true, nil
}

func latestOut(page *modelPage) *time.Time {
	var latest time.Time
	for _, c := range page.calls {
		if c.outSince.After(latest) {
			latest = c.outSince
		}
	}
	if latest.IsZero() {
		return nil
	}
	return &latest
}

// ensure makes the call for one instance, unless it is known to be needless. Settled tells that nothing can undo it.
func (m *manager) ensure(p *modelPod, page *modelPage, in Input, t target) (settled bool, err error) {
	c := page.calls[t.in]
	if c == nil && t.want != InService && (page.born || m.rules.unbornNeverIn) && !in.Record.Exists() {
		return true, nil
	}
	if m.recordStands(c, in, t) {
		c = &modelCall{want: t.want, acked: true, begunAt: m.w.now}
		if in.Record.OutSince != nil && !m.rules.forgetDrain {
			c.outSince = *in.Record.OutSince
		}
		page.calls[t.in] = c
	}
	if c == nil || !c.acked || c.want != t.want || !m.settled(c) && !m.w.now.Before(c.lateUntil()) {
		if err := m.call(p, page, t); err != nil {
			return false, err
		}
		c = page.calls[t.in]
	}
	return m.settled(c), nil
}

// recordStands: rule 1 (b).
func (m *manager) recordStands(c *modelCall, in Input, t target) bool {
	if !in.Record.Says(t.want, t.in) {
		return false
	}
	if m.rules.trustRecord {
		return true
	}
	stays := in.Pod.DeletionTimestamp != nil || slices.Contains([]appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStatePreparingDelete}, state(in.Pod))
	return c == nil && stays && in.Record.Fresh(in.Pod)
}

func (c *modelCall) lateUntil() time.Time {
	var latest time.Time
	for want, until := range c.late {
		if want != c.want && until.After(latest) {
			latest = until
		}
	}
	return latest
}

func (m *manager) settled(c *modelCall) bool {
	return m.rules.ignoreLate || !c.begunAt.Before(c.lateUntil())
}

// call makes one call, which works, fails before or after its work, or times out and is carried out late or never.
func (m *manager) call(p *modelPod, page *modelPage, t target) error {
	w := m.w
	w.changes++
	c := page.calls[t.in]
	if c == nil {
		c = &modelCall{late: map[Want]time.Time{}}
	}
	if t.want == InService {
		p.registeredIn, p.unarmed = m.edits, m.unarmed
		c.outSince = time.Time{}
	} else {
		p.unwritten = true
	}
	if !m.rules.noteOnlySuccesses {
		page.calls[t.in] = c
		c.want, c.acked = t.want, false
	}
	started := w.now
	do := func(at time.Time) {
		w.registry.pending = append(w.registry.pending, effect{entry{p.uid, t.in}, t.want, at})
	}
	if w.calm || !w.chance(w.failures) {
		return m.succeed(p, page, c, t, do, started)
	}
	w.logf("rollcall: call for %s to be %s fails", p.uid, t.want)
	switch w.rng.IntN(4) {
	case 0: // refused
	case 1: // done, and the answer lost
		do(w.now)
		w.pass(0)
	case 2: // timed out, and done late
		do(started.Add(modelTimeout + time.Duration(1+w.rng.IntN(int(modelLateBound-modelTimeout)))))
		w.pass(modelTimeout)
		c.timedOut(t.want, started)
	default: // timed out
		w.pass(modelTimeout)
		c.timedOut(t.want, started)
	}
	if err := m.step(); err != nil {
		return err
	}
	return errCall
}

func (m *manager) succeed(
	p *modelPod, page *modelPage, c *modelCall, t target, do func(time.Time), started time.Time,
) error {
	w := m.w
	var takes time.Duration
	if !w.calm {
		takes = time.Duration(1 + w.rng.Int64N(int64(w.takes)))
	}
	do(w.now.Add(time.Duration(w.rng.Int64N(int64(takes) + 1))))
	if err := m.stepOf(m.w.lifespan / 5); err != nil {
		return err // and the call is on its way still
	}
	w.pass(takes)
	if m.rules.settleByAnswer {
		started = w.now
	}
	w.logf("registry: %s is %s at %s", p.uid, t.want, t.in.Address)
	page.calls[t.in] = c
	c.want, c.acked, c.begunAt = t.want, true, started
	if _, wasIn := c.late[InService]; t.want != InService && (wasIn || c.outSince.IsZero()) {
		c.outSince = w.now
	}
	for want, until := range c.late {
		if !started.Before(until) {
			delete(c.late, want)
		}
	}
	return m.step()
}

func (c *modelCall) timedOut(want Want, started time.Time) {
	if c.late == nil {
		c.late = map[Want]time.Time{}
	}
	c.late[want] = started.Add(modelLateBound)
}

// patch writes to the API server, which refuses it where the pod moved on. It may get lost on the way, or its answer may.
func (m *manager) patch(p *modelPod, seen *corev1.Pod, hooks Hooks, edit Edit, record *Record) (*corev1.Pod, error) {
	w := m.w
	patch, err := Patch(seen, hooks, edit, record)
	if err != nil {
		m.t.Fatalf("making the patch: %v", err)
	}
	if err := m.step(); err != nil {
		return seen, err
	}
	if patch == nil {
		p.unwritten = p.unwritten && m.edits != w.edits
		return seen, nil
	}
	if p.api == nil || !w.calm && w.chance(10) {
		return nil, nil
	}
	if m.rules.patch != nil {
		patch = m.rules.patch(patch)
	}
	before := p.api
	after, err := applyPatch(m.t, before, patch)
	if err != nil {
		w.logf("rollcall: patch of %s is refused", p.uid)
		return nil, nil //nolint:nilerr // the pod moved on, which is no fault
	}
	w.logf("rollcall: patches %s: set %v clear %v", p.uid, edit.Set, edit.Clear)
	p.unwritten = p.unwritten && m.edits != w.edits
	w.commit(p, after)
	w.checkPatch(p, seen, before, p.api, m.edits != w.edits)
	if !w.calm && w.chance(10) {
		return nil, nil
	}
	return p.api.DeepCopy(), m.step()
}
