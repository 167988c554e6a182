// Package fakeregistry stands between a caller and a registry: it writes down every call, and does on demand what real
// registries do now and then: refuse, hang, do the work and lose the answer, or do it after the caller has given up.
package fakeregistry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// Backend is a registry whose content can be read back.
type Backend interface {
	registry.Registry
	registry.Lister
	registry.Getter
}

// Op is one method of the contract.
type Op string

// The methods of [registry.Registry], [registry.Lister] and [registry.Getter].
const (
	OpRegister   Op = "Register"
	OpFailOver   Op = "FailOver"
	OpDeregister Op = "Deregister"
	OpList       Op = "List"
	OpGet        Op = "Get"
)

// Call is one call that a [Registry] was given.
type Call struct {
	Op Op
	// Instance is what was asked for. Of a List only Cluster is set.
	Instance registry.Instance
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

// Registry is one with faults on demand, over a real one that does the work. It implements [registry.Registry],
// [registry.Lister], [registry.Getter] and [registry.AppEntrySteerer]. It is safe for concurrent use, and does nothing at random.
//
// At most one fault meets a call: first those for a number of calls, the oldest first, then the standing ones, the
// newest first.
type Registry struct {
	mu        sync.Mutex
	backend   Backend
	calls     []*Call
	counted   []*rule
	standing  []*rule
	listeners []*listener
	foreign   []*registry.Entry
	apps      Apps
}

var _ Backend = (*Registry)(nil)

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

// New returns a Registry with no faults, over the backend.
func New(backend Backend) *Registry {
	return &Registry{backend: backend}
}

// Register implements [registry.Registry].
func (f *Registry) Register(ctx context.Context, in registry.Instance) error {
	return f.call(ctx, OpRegister, in, func(ctx context.Context, b Backend) error { return b.Register(ctx, in) })
}

// FailOver implements [registry.Registry].
func (f *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return f.call(ctx, OpFailOver, in, func(ctx context.Context, b Backend) error { return b.FailOver(ctx, in) })
}

// Deregister implements [registry.Registry].
func (f *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return f.call(ctx, OpDeregister, in, func(ctx context.Context, b Backend) error { return b.Deregister(ctx, in) })
}

// List implements [registry.Lister].
func (f *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	var entries []registry.Entry
	asked := registry.Instance{Cluster: cluster}
	err := f.call(ctx, OpList, asked, func(ctx context.Context, b Backend) (err error) {
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
func (f *Registry) Foreign(at registry.Instance) (gone func()) {
	entry := &registry.Entry{
		Instance: registry.Instance{Service: at.Service, Address: at.Address, Port: at.Port}, State: registry.Foreign,
	}
	return added(f, &f.foreign, entry)
}

// Copy is Foreign with the instance's ownership tag, under another ID.
func (f *Registry) Copy(of registry.Instance, id string) (gone func()) {
	return added(f, &f.foreign, &registry.Entry{Instance: of, State: registry.Foreign, ID: id})
}

func (f *Registry) foreignEntries() (entries []registry.Entry) {
	f.update(func() {
		for _, e := range f.foreign {
			entries = append(entries, *e)
		}
	})
	return entries
}

// Get implements [registry.Getter].
func (f *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	var state registry.State
	err := f.call(ctx, OpGet, in, func(ctx context.Context, b Backend) (err error) {
		if slices.ContainsFunc(f.foreignEntries(), func(e registry.Entry) bool { return placeOf(e.Instance) == placeOf(in) }) {
			state = registry.Foreign
			return nil
		}
		state, err = b.Get(ctx, in)
		return err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}

// Truth reads the backend, past all faults, and leaves nothing in the journal.
func (f *Registry) Truth(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return f.backend.List(ctx, cluster)
}

// Expire removes entries from the backend, past all faults, as when they were not renewed. It leaves nothing in the
// journal.
func (f *Registry) Expire(ctx context.Context, ins ...registry.Instance) error {
	for _, in := range ins {
		if err := f.backend.Deregister(ctx, in); err != nil {
			return fmt.Errorf("letting pod %s expire: %w", in.Pod, err)
		}
	}
	return nil
}

// FailNext answers the next selected calls with these errors, one each in turn, and does no work for them.
func (f *Registry) FailNext(m Match, errs ...error) {
	for _, err := range errs {
		f.count(m, 1, func(context.Context, func(context.Context) error) error { return err })
	}
}

// Fail answers every selected call with err, and does no work for it, until stop is called.
func (f *Registry) Fail(m Match, err error) (stop func()) {
	return f.stand(m, func(context.Context, func(context.Context) error) error { return err })
}

// Delay makes every selected call take so long before its work, unless its context ends, until stop is called.
func (f *Registry) Delay(m Match, d time.Duration) (stop func()) {
	return f.stand(m, func(ctx context.Context, work func(context.Context) error) error {
		wait.Pause(ctx, d)
		return work(ctx)
	})
}

// LoseAnswers does the work of the next n selected calls, and then answers err all the same.
func (f *Registry) LoseAnswers(m Match, n int, err error) {
	f.count(m, n, func(ctx context.Context, work func(context.Context) error) error {
		if workErr := work(ctx); workErr != nil {
			return workErr
		}
		return err
	})
}

// Hold makes every selected call wait before its work until the hold is released. A call whose context ends first
// answers with the context's error, and its work is never done.
func (f *Registry) Hold(m Match) *Hold {
	h := newHold()
	h.stop = f.stand(m, h.meet(false))
	return h
}

// LandLate makes the next n selected calls wait until their context ends, and answer with the context's error. Their
// work is done when the hold is released: a request that was on its way when its sender gave up. A call that is still
// waiting when the hold is released is done and answered as any other.
func (f *Registry) LandLate(m Match, n int) *Hold {
	h := newHold()
	f.count(m, n, h.meet(true))
	return h
}

// OnAnswer calls fn for every selected call just before its caller gets the answer, until stop is called. The caller
// waits for fn, so this is where a test changes the world between an answer and what follows from it.
func (f *Registry) OnAnswer(m Match, fn func(Call)) (stop func()) {
	return added(f, &f.listeners, &listener{match: m, fn: fn})
}

// Calls returns the journal: the selected calls in the order in which they came, those under way included.
func (f *Registry) Calls(m Match) (calls []Call) {
	f.update(func() {
		for _, c := range f.calls {
			if m.Matches(*c) {
				calls = append(calls, *c)
			}
		}
	})
	return calls
}

func (f *Registry) call(
	ctx context.Context, op Op, in registry.Instance, work func(context.Context, Backend) error,
) error {
	in.Metadata, in.Tags = maps.Clone(in.Metadata), slices.Clone(in.Tags)
	c := &Call{Op: op, Instance: in}
	var behave behaviour
	f.update(func() {
		c.Started = time.Now()
		f.calls = append(f.calls, c)
		behave = f.fault(c)
	})
	err := behave(ctx, func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := work(ctx, f.backend); err != nil {
			return err
		}
		f.update(func() { c.Applied = time.Now() })
		return nil
	})
	f.answer(c, err)
	return err
}

// fault returns what the call meets. The caller holds the lock.
func (f *Registry) fault(c *Call) behaviour {
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

func (f *Registry) answer(c *Call, err error) {
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

func (f *Registry) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *Registry) count(m Match, n int, b behaviour) {
	f.update(func() { f.counted = append(f.counted, &rule{match: m, left: n, behaviour: b}) })
}

func (f *Registry) stand(m Match, b behaviour) (stop func()) {
	return added(f, &f.standing, &rule{match: m, behaviour: b})
}

// added adds to one of the registry's lists until remove is called.
func added[T any](f *Registry, list *[]*T, one *T) (remove func()) {
	f.update(func() { *list = append(*list, one) })
	return func() {
		f.update(func() { *list = slices.DeleteFunc(*list, func(o *T) bool { return o == one }) })
	}
}

func newHold() *Hold {
	return &Hold{stop: func() {}, released: make(chan struct{}), changed: make(chan struct{})}
}
