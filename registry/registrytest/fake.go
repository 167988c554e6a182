package registrytest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Backend is a registry whose content can be read back.
type Backend interface {
	registry.Registry
	registry.Lister
}

// Op is one method of the contract.
type Op string

// The methods of [registry.Registry] and of the optional interfaces. A change in a batch is written down as the call that
// it stands for.
const (
	OpRegister   Op = "Register"
	OpFailOver   Op = "FailOver"
	OpDeregister Op = "Deregister"
	OpList       Op = "List"
	OpProbe      Op = "Probe"
	OpHeartbeat  Op = "Heartbeat"
	OpGet        Op = "Get"
	OpClose      Op = "Close"
)

// Call is one call that a [Fake] was given.
type Call struct {
	Op Op
	// Instance is what was asked for. Of a List only Cluster is set, of a Close nothing.
	Instance registry.Instance
	// Batch is the number of the batch that the change came in, counted from 1; 0 is a call of its own.
	Batch int
	// Started is when the call came in.
	Started time.Time
	// Applied is when the backend had done the work; zero if it never did. It can be after Answered.
	Applied time.Time
	// Answered is when the answer was about to be given; zero while the call is under way.
	Answered time.Time
	// Err is the answer; nil with Answered set is the acknowledgement.
	Err error
}

// Acknowledged reports whether the call was answered without an error.
func (c Call) Acknowledged() bool { return !c.Answered.IsZero() && c.Err == nil }

// Match selects calls. Every field that is not empty must be equal; the zero Match selects all.
type Match struct {
	Op                           Op
	Service, Namespace, Pod, UID string
}

// Matches reports whether m selects the call.
func (m Match) Matches(c Call) bool {
	same := func(want, got string) bool { return want == "" || want == got }
	return same(string(m.Op), string(c.Op)) &&
		same(m.Service, c.Instance.Service) &&
		same(m.Namespace, c.Instance.Namespace) &&
		same(m.Pod, c.Instance.Pod) &&
		same(m.UID, c.Instance.UID)
}

// Fake is a registry with faults on demand, over a real one that does the work. It implements [registry.Registry],
// [registry.Lister] and [registry.Getter]; [Fake.Driver] gives it further capabilities. It is safe for concurrent use, and does nothing at
// random.
//
// At most one fault meets a call: first those for a number of calls, the oldest first, then the standing ones, the
// newest first.
type Fake struct {
	mu        sync.Mutex
	backend   Backend
	calls     []*Call
	counted   []*rule
	standing  []*rule
	listeners []*listener
	holds     []*Hold
	batches   int
	foreign   []*registry.Entry
	frozen    map[string][]registry.Entry // by cluster: what List answers
	changed   chan struct{}               // closed and replaced at each change of calls
}

var (
	_ Backend         = (*Fake)(nil)
	_ registry.Getter = (*Fake)(nil)
)

// behaviour is what a fault makes of a call; work has the backend do it.
type behaviour func(ctx context.Context, work func(context.Context) error) error

type rule struct {
	match     Match
	left      int // calls still to meet; counted rules only
	behaviour behaviour
}

type listener struct {
	match Match
	fn    func(Call)
}

// NewFake returns a Fake with no faults, over the backend.
func NewFake(backend Backend) *Fake {
	return &Fake{backend: backend, frozen: map[string][]registry.Entry{}, changed: make(chan struct{})}
}

// Register implements [registry.Registry].
func (f *Fake) Register(ctx context.Context, in registry.Instance) error {
	return f.call(ctx, OpRegister, in, func(ctx context.Context, b Backend) error { return b.Register(ctx, in) })
}

// FailOver implements [registry.Registry].
func (f *Fake) FailOver(ctx context.Context, in registry.Instance) error {
	return f.call(ctx, OpFailOver, in, func(ctx context.Context, b Backend) error { return b.FailOver(ctx, in) })
}

// Deregister implements [registry.Registry].
func (f *Fake) Deregister(ctx context.Context, in registry.Instance) error {
	return f.call(ctx, OpDeregister, in, func(ctx context.Context, b Backend) error { return b.Deregister(ctx, in) })
}

// List implements [registry.Lister].
func (f *Fake) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	var entries []registry.Entry
	asked := registry.Instance{Cluster: cluster}
	err := f.call(ctx, OpList, asked, func(ctx context.Context, b Backend) (err error) {
		var old bool
		if entries, old = f.frozenList(cluster); old {
			return nil
		}
		entries, err = b.List(ctx, cluster)
		entries = append(entries, f.foreignEntries()...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// Foreign puts an entry of somebody else at the instance's identity, which List and Get tell of and no call changes, until
// gone is called. Where a driver sees it in a change, use FailNext with an error marked by [registry.ForeignEntry].
func (f *Fake) Foreign(at registry.Instance) (gone func()) {
	entry := &registry.Entry{
		Instance: registry.Instance{Service: at.Service, Address: at.Address, Port: at.Port}, State: registry.Foreign,
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foreign = append(f.foreign, entry)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.foreign = slices.DeleteFunc(f.foreign, func(e *registry.Entry) bool { return e == entry })
	}
}

func (f *Fake) foreignEntries() []registry.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	var entries []registry.Entry
	for _, e := range f.foreign {
		entries = append(entries, *e)
	}
	return entries
}

// Get implements [registry.Getter]. It says what the backend does, if that is a Getter, else what its list holds, and never
// what a frozen list did. Faults: FailNext, Fail or Hold with Match{Op: OpGet}.
func (f *Fake) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	var state registry.State
	err := f.call(ctx, OpGet, in, func(ctx context.Context, b Backend) (err error) {
		if slices.ContainsFunc(f.foreignEntries(), func(e registry.Entry) bool { return sameIdentity(e.Instance, in) }) {
			state = registry.Foreign
			return nil
		}
		if getter, ok := b.(registry.Getter); ok {
			state, err = getter.Get(ctx, in)
			return err
		}
		state, err = stateOf(ctx, b, in)
		return err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}

// Truth reads the backend, past all faults, and leaves nothing in the journal.
func (f *Fake) Truth(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return f.current().List(ctx, cluster)
}

// Replace puts another backend in the place of the present one, as when a registry comes back with its data lost. Calls
// that the old one is working on end there.
func (f *Fake) Replace(backend Backend) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backend = backend
}

// Expire removes entries from the backend, past all faults, as when they were not renewed. It leaves nothing in the
// journal.
func (f *Fake) Expire(ctx context.Context, ins ...registry.Instance) error {
	backend := f.current()
	for _, in := range ins {
		if err := backend.Deregister(ctx, in); err != nil {
			return fmt.Errorf("letting %s expire: %w", show(in), err)
		}
	}
	return nil
}

// FreezeList has List answer for the cluster with what there is now, whatever changes, until thaw is called: a registry
// that answers from a cache.
func (f *Fake) FreezeList(ctx context.Context, cluster string) (thaw func(), err error) {
	entries, err := f.Truth(ctx, cluster)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen[cluster] = entries
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.frozen, cluster)
	}, nil
}

func (f *Fake) frozenList(cluster string) ([]registry.Entry, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, frozen := f.frozen[cluster]
	return clones(entries), frozen
}

func clones(entries []registry.Entry) []registry.Entry {
	own := slices.Clone(entries)
	for i := range own {
		own[i].Metadata = maps.Clone(own[i].Metadata)
	}
	return own
}

// Reset forgets all calls, faults and listeners, lets held calls go and frozen lists thaw, and drops work that was still
// to land. What the backend holds stays.
func (f *Fake) Reset() {
	f.mu.Lock()
	holds := f.holds
	f.calls, f.counted, f.standing, f.listeners, f.holds = nil, nil, nil, nil, nil
	f.foreign, f.batches, f.frozen = nil, 0, map[string][]registry.Entry{}
	f.announce()
	f.mu.Unlock()
	for _, h := range holds {
		h.open(false)
	}
}

// FailNext answers the next selected calls with these errors, one each in turn, and does no work for them.
func (f *Fake) FailNext(m Match, errs ...error) {
	for _, err := range errs {
		f.count(m, 1, func(context.Context, func(context.Context) error) error { return err })
	}
}

// Fail answers every selected call with err, and does no work for it, until stop is called.
func (f *Fake) Fail(m Match, err error) (stop func()) {
	return f.stand(m, func(context.Context, func(context.Context) error) error { return err })
}

// LoseAnswers does the work of the next n selected calls, and then answers err all the same.
func (f *Fake) LoseAnswers(m Match, n int, err error) {
	f.count(m, n, func(ctx context.Context, work func(context.Context) error) error {
		if workErr := work(ctx); workErr != nil {
			return workErr
		}
		return err
	})
}

// Delay makes every selected call wait for d before its work, or until its context ends, until stop is called.
func (f *Fake) Delay(m Match, d time.Duration) (stop func()) {
	return f.stand(m, func(ctx context.Context, work func(context.Context) error) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return work(ctx)
		}
	})
}

// Hold makes every selected call wait before its work until the hold is released. A call whose context ends first
// answers with the context's error, and its work is never done.
func (f *Fake) Hold(m Match) *Hold {
	h := f.newHold()
	h.stop = f.stand(m, h.wait)
	return h
}

// LandLate makes the next n selected calls wait until their context ends, and answer with the context's error. Their
// work is done when the hold is released: a request that was on its way when its sender gave up. A call that is still
// waiting when the hold is released is done and answered as any other.
func (f *Fake) LandLate(m Match, n int) *Hold {
	h := f.newHold()
	f.count(m, n, h.land)
	return h
}

// OnAnswer calls fn for every selected call just before its caller gets the answer, until stop is called. The caller
// waits for fn, so this is where a test changes the world between an answer and what follows from it.
func (f *Fake) OnAnswer(m Match, fn func(Call)) (stop func()) {
	l := &listener{match: m, fn: fn}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, l)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.listeners = slices.DeleteFunc(f.listeners, func(o *listener) bool { return o == l })
	}
}

// Calls returns the journal: the selected calls since the start or the last Reset, in the order in which they came,
// those under way included.
func (f *Fake) Calls(m Match) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.selected(m)
}

// Await returns when done says so of the selected calls, or with the context's error. It looks at each change of the
// journal; done must not call the Fake.
func (f *Fake) Await(ctx context.Context, m Match, done func([]Call) bool) error {
	for {
		f.mu.Lock()
		calls, changed := f.selected(m), f.changed
		f.mu.Unlock()
		if done(calls) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for calls %+v, %d so far: %w", m, len(calls), ctx.Err())
		case <-changed:
		}
	}
}

func (f *Fake) call(
	ctx context.Context, op Op, in registry.Instance, work func(context.Context, Backend) error,
) error {
	in.Metadata = maps.Clone(in.Metadata)
	return f.begin(&Call{Op: op, Instance: in}).do(ctx, work)
}

// begun is a call that is written down, with the fault that it meets.
type begun struct {
	f      *Fake
	call   *Call
	behave behaviour
}

func (b begun) do(ctx context.Context, work func(context.Context, Backend) error) error {
	f, c := b.f, b.call
	err := b.behave(ctx, func(ctx context.Context) error {
		if err := work(ctx, f.current()); err != nil {
			return err
		}
		f.update(func() { c.Applied = time.Now() })
		return nil
	})
	f.answer(c, err)
	return err
}

// begin writes the call down and takes the fault that it meets.
func (f *Fake) begin(c *Call) begun {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.beginLocked(c)
}

// beginLocked is begin for a caller that holds the lock.
func (f *Fake) beginLocked(c *Call) begun {
	c.Started = time.Now()
	f.calls = append(f.calls, c)
	f.announce()
	return begun{f: f, call: c, behave: f.fault(c)}
}

// fault returns what the call meets. The caller holds the lock.
func (f *Fake) fault(c *Call) behaviour {
	for i, r := range f.counted {
		if !r.match.Matches(*c) {
			continue
		}
		if r.left--; r.left == 0 {
			f.counted = slices.Delete(f.counted, i, i+1)
		}
		return r.behaviour
	}
	for _, r := range slices.Backward(f.standing) {
		if r.match.Matches(*c) {
			return r.behaviour
		}
	}
	return func(ctx context.Context, work func(context.Context) error) error { return work(ctx) }
}

func (f *Fake) answer(c *Call, err error) {
	var told []func(Call)
	var answered Call
	f.update(func() {
		c.Answered, c.Err = time.Now(), err
		answered = *c
		for _, l := range f.listeners {
			if l.match.Matches(answered) {
				told = append(told, l.fn)
			}
		}
	})
	for _, fn := range told {
		fn(answered)
	}
}

func (f *Fake) current() Backend {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.backend
}

func (f *Fake) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.announce()
}

// announce wakes those who await. The caller holds the lock.
func (f *Fake) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// selected copies the journal. The caller holds the lock.
func (f *Fake) selected(m Match) []Call {
	var calls []Call
	for _, c := range f.calls {
		if m.Matches(*c) {
			calls = append(calls, *c)
		}
	}
	return calls
}

func (f *Fake) count(m Match, n int, b behaviour) {
	if n < 1 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted = append(f.counted, &rule{match: m, left: n, behaviour: b})
}

func (f *Fake) stand(m Match, b behaviour) (stop func()) {
	r := &rule{match: m, behaviour: b}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.standing = append(f.standing, r)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.standing = slices.DeleteFunc(f.standing, func(o *rule) bool { return o == r })
	}
}

func (f *Fake) newHold() *Hold {
	h := &Hold{stop: func() {}, released: make(chan struct{}), changed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds = append(f.holds, h)
	return h
}
