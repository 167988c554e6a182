package registrytest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const (
	// longLease outlives a case, shortLease is worth waiting for, and interval is a fraction of it that a busy machine
	// keeps.
	longLease  = time.Hour
	shortLease = 6 * time.Second
	interval   = 400 * time.Millisecond
	// lag is how old the answers of a store that lags are.
	lag = 100 * time.Millisecond
)

// store is a registry with leases, which can be restarted, whose list can lag, and into which applications write too.
type store struct {
	volatile bool // it forgets all in a restart
	lags     time.Duration
	wrong    error // what it answers while it is away

	mu      sync.Mutex
	kept    backend
	expires map[registered]time.Time // of those with a short lease
	away    bool
	answers map[string]answer         // by cluster
	foreign map[string]registry.Entry // by ID

	// apps is what applications have registered for Rollcall to steer.
	apps fakeregistry.Apps

	// shared is what all processes of a broken driver know.
	shared sync.Map
}

type backend interface {
	registry.Registry
	registry.Lister
}

type registered struct{ service, address, cluster, uid string }

type answer struct {
	entries []registry.Entry
	from    time.Time
}

func placeOf(in registry.Instance) string { return in.Service + " " + in.Endpoint() }

func newStore(t testing.TB) *store {
	t.Helper()
	return &store{
		wrong: errors.New("connection refused"), kept: fakeregistry.Memory(t.Context()), expires: map[registered]time.Time{},
		answers: map[string]answer{}, foreign: map[string]registry.Entry{},
	}
}

// sound is a driver of all capabilities over the store. Each process has one of its own.
type sound struct {
	*store

	lease time.Duration
	fault func(context.Context) error // each call ends as it does; nil: the store answers
	// own is what this process of a broken driver knows.
	own    *sync.Map
	broken broken
}

// call answers a call of this name, unless it is replaced. The context is looked at either way.
func (d sound) call(ctx context.Context, name string, in registry.Instance, answer func(context.Context) error) error {
	if name == d.broken.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	replaced := d.broken.calls[name]
	if replaced == nil || d.fault != nil {
		return d.ask(ctx, func() error { return answer(ctx) })
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return replaced(ctx, in)
}

// ask answers a call with the store locked and without what has expired.
func (d sound) ask(ctx context.Context, answer func() error) error {
	if d.fault != nil {
		return d.fault(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.away {
		return d.wrong
	}
	for key, until := range d.expires {
		if time.Now().After(until) {
			d.expire(ctx, key)
		}
	}
	return answer()
}

// expire removes an entry that was not renewed. The caller holds the lock.
func (d sound) expire(ctx context.Context, key registered) {
	delete(d.expires, key)
	entries, _ := d.kept.List(ctx, key.cluster)
	for _, e := range entries {
		if keyOf(e.Instance) == key {
			_ = d.kept.Deregister(ctx, e.Instance)
		}
	}
}

func keyOf(in registry.Instance) registered {
	return registered{in.Service, in.Endpoint(), in.Cluster, in.UID}
}

// lend begins a lease, or begins it anew. The caller holds the lock.
func (d sound) lend(in registry.Instance) {
	delete(d.expires, keyOf(in))
	if d.lease < longLease {
		d.expires[keyOf(in)] = time.Now().Add(d.lease)
	}
}

func (d sound) Register(ctx context.Context, in registry.Instance) error {
	return d.change(ctx, "Register", in, backend.Register)
}

func (d sound) FailOver(ctx context.Context, in registry.Instance) error {
	return d.change(ctx, "FailOver", in, backend.FailOver)
}

func (d sound) Deregister(ctx context.Context, in registry.Instance) error {
	return d.change(ctx, "Deregister", in, backend.Deregister)
}

// change makes a call on what is kept when the lock is held: a restart puts another backend there.
func (d sound) change(ctx context.Context, name string, in registry.Instance, do func(backend, context.Context, registry.Instance) error) error {
	return d.call(ctx, name, in, func(ctx context.Context) error {
		d.lend(in)
		return do(d.kept, ctx, in)
	})
}

func (d sound) List(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	if d.broken.list != nil && ctx.Err() == nil {
		return d.broken.list(ctx, cluster)
	}
	err = d.ask(ctx, func() (err error) {
		a := d.answers[cluster]
		if time.Since(a.from) >= d.lags {
			a.entries, err = d.kept.List(ctx, cluster)
			a.from = time.Now()
			d.answers[cluster] = a
		}
		entries = slices.Clone(a.entries)
		for _, e := range d.foreign {
			if driverkit.IsForeignTo(cluster, e.Meta()) {
				entries = append(entries, e)
			}
		}
		return err
	})
	return entries, err
}

// now reads the store past its lag, and without what others wrote.
func (d sound) now(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	err = d.ask(ctx, func() (err error) {
		entries, err = d.kept.List(ctx, cluster)
		return err
	})
	return entries, err
}

func (d sound) Traits() registry.Traits {
	return registry.Traits{Staleness: min(d.lags, lag), HeartbeatInterval: interval}
}

func (d sound) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	if d.broken.get != nil && ctx.Err() == nil {
		return d.broken.get(ctx, in)
	}
	err = d.call(ctx, "Get", in, func(ctx context.Context) error {
		state = registry.Absent
		if d.isForeign(in) {
			state = registry.Foreign
		} else if e, known := find(ctx, d.kept, in); known && in.Owns(e.UID, e.Registry) {
			state = e.State
		}
		return nil
	})
	return state, err
}

func (d sound) isForeign(in registry.Instance) bool {
	for _, e := range d.foreign {
		if driverkit.IsForeignTo(in.Cluster, e.Meta()) && driverkit.GivesInstance(e, in) {
			return true
		}
	}
	return false
}

func (d sound) Probe(ctx context.Context, in registry.Instance) error {
	return d.call(ctx, "Probe", in, func(ctx context.Context) error {
		if e, known := find(ctx, d.kept, in); !known || e.UID != in.UID || e.State != registry.InService {
			return errors.New("clients are not given it")
		}
		return nil
	})
}

func (d sound) Heartbeat(ctx context.Context, in registry.Instance) error {
	return d.call(ctx, "Heartbeat", in, func(ctx context.Context) error {
		if e, known := find(ctx, d.kept, in); !known || e.UID != in.UID {
			return registry.NotRegistered(errors.New("404 no such instance"))
		}
		d.lend(in)
		return nil
	})
}

func (d sound) BatchLimit() int { return cmp.Or(d.broken.limit, 5) }

func (d sound) Batch(ctx context.Context, changes []registry.Change) []error {
	if d.broken.batch != nil && d.fault == nil {
		return d.broken.batch(ctx, changes)
	}
	d.broken = broken{} // a batch makes its changes by itself
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = c.Make(ctx, d)
	}
	return errs
}

func (d sound) Close() error {
	if d.broken.close == nil {
		return nil
	}
	return d.broken.close()
}

func (d sound) AppEntries() registry.AppRegistry { return steering{d} }

// find returns the entry at the instance's identity, whoever's it is.
func find(ctx context.Context, b registry.Lister, in registry.Instance) (registry.Entry, bool) {
	entries, _ := b.List(ctx, in.Cluster)
	i := slices.IndexFunc(entries, func(e registry.Entry) bool { return placeOf(e.Instance) == placeOf(in) })
	if i < 0 {
		return registry.Entry{}, false
	}
	return entries[i], true
}

// steering changes the entries of applications.
type steering struct{ sound }

func (s steering) Register(ctx context.Context, in registry.Instance) error {
	return s.call(ctx, "AppRegister", in, func(ctx context.Context) error { return s.apps.Register(ctx, in) })
}

func (s steering) FailOver(ctx context.Context, in registry.Instance) error {
	return s.call(ctx, "AppFailOver", in, func(ctx context.Context) error { return s.apps.FailOver(ctx, in) })
}

func (s steering) Deregister(ctx context.Context, in registry.Instance) error {
	return s.call(ctx, "AppDeregister", in, func(ctx context.Context) error { return s.apps.Deregister(ctx, in) })
}

func (s steering) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = s.ask(ctx, func() (err error) {
		state, err = s.apps.Get(ctx, in)
		return err
	})
	return state, err
}

// appClient is the client of one application.
type appClient struct{ fakeregistry.App }

func (c appClient) Renew() { c.Register() }

func (s *store) app(_ testing.TB, at registry.Instance) registrytest.App {
	at.Tags = []string{"its own"}
	return appClient{fakeregistry.App{Apps: &s.apps, At: at, Writer: at.Pod}}
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// restart has the store be away for a moment.
func (s *store) restart(t testing.TB) {
	s.set(func() { s.away = true })
	time.Sleep(200 * time.Millisecond)
	s.set(func() {
		s.away = false
		if s.volatile {
			s.kept = fakeregistry.Memory(t.Context())
		}
	})
}

// harness is that of a driver of all capabilities, made anew for each process.
func (s *store) harness(wrap func(sound) registry.Registry) registrytest.Harness {
	process := func(lease time.Duration, fault func(context.Context) error) registry.Registry {
		return wrap(sound{store: s, lease: lease, fault: fault, own: &sync.Map{}})
	}
	failing := func(err error) func(testing.TB) registry.Registry {
		return func(testing.TB) registry.Registry {
			return process(longLease, func(context.Context) error { return err })
		}
	}
	return registrytest.Harness{
		Open:       func(testing.TB, string) registry.Registry { return process(longLease, nil) },
		ShortLease: func(testing.TB, string) registry.Registry { return process(shortLease, nil) },
		Restart:    s.restart,
		Foreign: func(_ testing.TB, at registry.Instance) func() {
			return s.adds("app "+placeOf(at), driverkit.Foreign(at.Service, at.Address, at.Port))
		},
		Copy: func(_ testing.TB, of registry.Instance) func() {
			return s.adds("copy "+placeOf(of), registry.Entry{Instance: of, State: registry.Foreign, ID: "copy"})
		},
		App:              s.app,
		Unreachable:      failing(errors.New("connection refused")),
		Refusing:         failing(registry.Terminal(errors.New("frozen"))),
		LoginPage:        failing(errors.New("decoding the answer: <html>")),
		WrongCredentials: failing(registry.Terminal(registry.FieldError("auth.tokenFile", errors.New("403")))),
		Stalled: func(testing.TB) registry.Registry {
			return process(longLease, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		},
		LosingAnswers: losing(s, cutError{errors.New("connection reset")}),
		Metered:       metered(s, 0, 0, 0),
		Bare:          func(testing.TB) registrytest.Bare { return bareCalls() },
		Failing: func(testing.TB) (registry.Registry, func() int) {
			var attempts atomic.Int64
			d := process(longLease, func(context.Context) error {
				attempts.Add(1)
				return errors.New("503 try later")
			})
			return d, func() int { return int(attempts.Load()) }
		},
		Placed: func(testing.TB, string) (registrytest.Placed, [2]string) {
			return inPlaces(process(longLease, nil)), [2]string{"shop", "mall"}
		},
		RefusedPlace: func(testing.TB, string) (registrytest.Placed, string) {
			return inPlaces(process(longLease, nil)), refusedPlace
		},
		Secrets: []string{"hunter2"},
		Lacks:   map[registrytest.Capability]string{},
	}
}

// adds puts an entry there that no driver changes.
func (s *store) adds(id string, e registry.Entry) (remove func()) {
	s.set(func() { s.foreign[id] = e })
	return func() { s.set(func() { delete(s.foreign, id) }) }
}

func asItIs(d sound) registry.Registry { return d }

// placed refuses one place.
type placed struct{ fakeregistry.Placed }

func inPlaces(d registry.Registry) placed {
	return placed{fakeregistry.Placed{Backend: d.(sound), Template: "{namespace}"}}
}

const refusedPlace = "vault"

func (p placed) ListPlace(ctx context.Context, cluster, place string) ([]registry.Entry, error) {
	if place == refusedPlace {
		return nil, registry.Terminal(errors.New("403"))
	}
	return p.Placed.ListPlace(ctx, cluster, place)
}

// losing makes drivers that get one answer in each call, and end the call with err where that is lost.
func losing(s *store, err error) func(testing.TB, string) (registry.Registry, func(int) func() bool) {
	return func(testing.TB, string) (registry.Registry, func(int) func() bool) {
		d := &losingDriver{plain: bare(sound{store: s, lease: longLease}).(plain), err: err}
		return d, func(n int) func() bool {
			d.loses.Store(n == 1)
			return d.lost.Load
		}
	}
}

type losingDriver struct {
	plain

	err         error
	loses, lost atomic.Bool
}

func (d *losingDriver) Register(ctx context.Context, in registry.Instance) error {
	if err := d.plain.Register(ctx, in); err != nil || !d.loses.Load() {
		return err
	}
	d.lost.Store(true)
	return d.err
}

// metered makes drivers whose every call costs a request of 500 bytes, and some for each entry of the service.
// bareCalls cost nothing.
func bareCalls() registrytest.Bare {
	call := func(context.Context, registry.Instance) error { return nil }
	return registrytest.Bare{Register: call, Deregister: call}
}

// metered is of a driver that reads bytes for each entry when it removes or steers one, and takes CPU of the server for each time.
func metered(
	s *store, removing, steers int64, takes time.Duration,
) func(testing.TB, string) (registry.Registry, func() registrytest.Spent) {
	return func(_ testing.TB, cluster string) (registry.Registry, func() registrytest.Spent) {
		d := &meteredDriver{sound: sound{store: s, lease: longLease}, removing: removing, steers: steers, cluster: cluster}
		return d, func() registrytest.Spent {
			requests := d.requests.Load()
			const started = time.Second
			return registrytest.Spent{Bytes: d.bytes.Load(), Requests: requests, Server: started + time.Duration(requests)*takes}
		}
	}
}

type meteredDriver struct {
	sound

	removing, steers int64 // bytes for each entry that is read for it
	cluster          string
	bytes, requests  atomic.Int64
}

func (d *meteredDriver) reads(ctx context.Context, in registry.Instance, each int64) error {
	entries, err := d.List(ctx, d.cluster)
	entries = slices.DeleteFunc(entries, func(e registry.Entry) bool { return e.Service != in.Service })
	d.bytes.Add(500 + each*int64(len(entries)))
	d.requests.Add(1)
	return err
}

func (d *meteredDriver) Deregister(ctx context.Context, in registry.Instance) error {
	if err := d.reads(ctx, in, d.removing); err != nil {
		return err
	}
	return d.sound.Deregister(ctx, in)
}

func (d *meteredDriver) AppEntries() registry.AppRegistry {
	return meteredSteering{steering{d.sound}, d}
}

type meteredSteering struct {
	steering

	of *meteredDriver
}

func (m meteredSteering) FailOver(ctx context.Context, in registry.Instance) error {
	if err := m.of.reads(ctx, in, m.of.steers); err != nil {
		return err
	}
	return m.steering.FailOver(ctx, in)
}

// cutError is of a connection that ended before the answer.
type cutError struct{ error }

func (cutError) Timeout() bool { return true }

// plain has of a driver what it takes to register and to list.
type plain struct {
	registry.Registry
	registry.Lister
}

func bare(d backend) registry.Registry { return plain{d, d} }

// plainHarness is that of a plain driver, on a registry that can do no more.
func (s *store) plainHarness(wrap func(sound) registry.Registry) registrytest.Harness {
	return registrytest.Harness{
		Open:  s.harness(wrap).Open,
		Truth: sound{store: s, lease: longLease}.now,
		Lacks: map[registrytest.Capability]string{},
	}
}

func TestASoundDriverPasses(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		set    func(*store)
		plain  bool
	}
	expect.Each(t, map[string]row{
		"durable":  {"nothing may be skipped", func(*store) {}, false},
		"volatile": {"a registry may forget", func(s *store) { s.volatile = true }, false},
		"lagging":  {"a list may lag, and is waited for", func(s *store) { s.lags = lag }, false},
		"plain":    {"a driver need not have more than the contract", func(*store) {}, true},
	}, func(t *testing.T, tc row) {
		s := newStore(t)
		tc.set(s)
		h := s.harness(asItIs)
		if tc.plain {
			h = s.plainHarness(func(d sound) registry.Registry { return bare(d) })
		}
		if s.volatile {
			h.Lacks[registrytest.Durable] = "it forgets"
		}
		registrytest.Run(t, h)
	})
}
