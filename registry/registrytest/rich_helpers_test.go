package registrytest_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

const (
	// longLease outlives a case, shortLease is worth waiting for, and interval is a fraction of it that a busy machine
	// keeps.
	longLease  = time.Hour
	shortLease = 2 * time.Second
	interval   = 400 * time.Millisecond
	// lag is how old the answers of a store that lags are.
	lag = 100 * time.Millisecond
)

// rich is a driver with all that a driver can have.
type rich interface {
	registry.Registry
	registry.StaleLister
	registry.Getter
	registry.Prober
	registry.Heartbeater
	registry.Batcher
	io.Closer
}

// store is a registry with leases, which can be restarted and whose list can lag.
type store struct {
	volatile bool // it forgets all in a restart
	lags     bool
	wrong    error // what it answers while it is away

	mu      sync.Mutex
	kept    registrytest.Backend
	leases  map[string]lease // by leaseKey
	soonest time.Time        // no lease ends before
	away    bool
	answers map[string]answer // by cluster
}

type lease struct {
	in    registry.Instance
	until time.Time
}

func leaseKey(in registry.Instance) string { return in.Service + " " + in.Endpoint() + " " + in.UID }

type answer struct {
	entries []registry.Entry
	from    time.Time
}

func newStore(t *testing.T) *store {
	t.Helper()
	return &store{
		wrong: errors.New("connection refused"), kept: newMemory(t), leases: map[string]lease{}, answers: map[string]answer{},
	}
}

// process is a backend over the store that asks for a lease.
type process struct {
	*store
	lease time.Duration
}

func (p process) Register(ctx context.Context, in registry.Instance) error {
	return p.change(ctx, in, registrytest.Backend.Register)
}

func (p process) FailOver(ctx context.Context, in registry.Instance) error {
	return p.change(ctx, in, registrytest.Backend.FailOver)
}

func (p process) Deregister(ctx context.Context, in registry.Instance) error {
	return p.change(ctx, in, registrytest.Backend.Deregister)
}

// change carries a call out on what is kept when the lock is held: a restart puts another backend there.
func (p process) change(
	ctx context.Context, in registry.Instance, do func(registrytest.Backend, context.Context, registry.Instance) error,
) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(ctx); err != nil {
		return err
	}
	p.lend(in)
	return do(p.kept, ctx, in)
}

func (p process) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(ctx); err != nil {
		return nil, err
	}
	if a := p.answers[cluster]; p.lags && time.Since(a.from) < lag {
		return slices.Clone(a.entries), nil
	}
	entries, err := p.kept.List(ctx, cluster)
	p.answers[cluster] = answer{entries: entries, from: time.Now()}
	return slices.Clone(entries), err
}

// Get implements [registry.Getter]: it looks past the list, which may lag.
func (p process) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(ctx); err != nil {
		return "", err
	}
	if e, known := find(ctx, p.kept, in); known && in.Owns(e.UID, e.Registry) {
		return e.State, nil
	}
	return registry.Absent, nil
}

// Probe implements [registry.Prober]: it looks past the list, which may lag.
func (p process) Probe(ctx context.Context, in registry.Instance) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(ctx); err != nil {
		return err
	}
	if e, known := find(ctx, p.kept, in); !known || e.UID != in.UID || e.State != registry.InService {
		return errors.New("clients are not given it")
	}
	return nil
}

func (p process) Heartbeat(ctx context.Context, in registry.Instance) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(ctx); err != nil {
		return err
	}
	if e, known := find(ctx, p.kept, in); !known || e.UID != in.UID {
		return registry.NotRegistered(errors.New("404 no such instance"))
	}
	p.lend(in)
	return nil
}

// lend begins a lease, or begins it anew. The caller holds the lock.
func (p process) lend(in registry.Instance) {
	until := time.Now().Add(p.lease)
	p.leases[leaseKey(in)] = lease{in: in, until: until}
	if p.soonest.IsZero() || until.Before(p.soonest) {
		p.soonest = until
	}
}

func (p process) HeartbeatInterval() time.Duration { return interval }

// expire removes what nobody has renewed. The caller holds the lock.
func (p process) expire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.away {
		return p.wrong
	}
	now := time.Now()
	if now.Before(p.soonest) {
		return nil
	}
	p.soonest = time.Time{}
	for key, l := range p.leases {
		switch {
		case now.After(l.until):
			_ = p.kept.Deregister(ctx, l.in)
			delete(p.leases, key)
		case p.soonest.IsZero() || l.until.Before(p.soonest):
			p.soonest = l.until
		}
	}
	return nil
}

// restart has the store be away for a moment.
func (s *store) restart(t registrytest.T) {
	s.set(func() { s.away = true })
	time.Sleep(200 * time.Millisecond)
	s.set(func() {
		s.away = false
		if s.volatile {
			s.kept = newMemoryFor(t)
		}
	})
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// faulty is a driver of all capabilities whose every call fails with err.
func (s *store) faulty(err error) rich {
	fake := registrytest.NewFake(process{s, longLease})
	fake.Fail(registrytest.Match{}, err)
	return s.driver(fake)
}

func (s *store) driver(fake *registrytest.Fake) rich {
	o := registrytest.FakeOptions{Prober: true, Heartbeater: true, HeartbeatInterval: interval, BatchLimit: 5}
	if s.lags {
		o.Staleness = lag
	}
	return fake.Driver(o).(rich)
}

// overStore is the harness of a wrapper of one store. A wrapper is made anew for each process.
func overStore(s *store, wrap func(rich) registry.Registry) registrytest.Harness {
	open := func(lease time.Duration) func(registrytest.T, string) registry.Registry {
		return func(registrytest.T, string) registry.Registry {
			return wrap(s.driver(registrytest.NewFake(process{s, lease})))
		}
	}
	failing := func(err error) func(registrytest.T) registry.Registry {
		return func(registrytest.T) registry.Registry { return wrap(s.faulty(err)) }
	}
	return registrytest.Harness{
		Open:             open(longLease),
		ShortLease:       open(shortLease),
		Restart:          s.restart,
		Unreachable:      failing(errors.New("connection refused")),
		Refusing:         failing(registry.Terminal(errors.New("frozen"))),
		WrongCredentials: failing(registry.Terminal(registry.FieldError("auth.tokenFile", errors.New("403")))),
		Stalled: func(t registrytest.T) registry.Registry {
			fake := registrytest.NewFake(process{s, longLease})
			t.Cleanup(fake.Hold(registrytest.Match{}).Release)
			return wrap(s.driver(fake))
		},
		Failing: func(registrytest.T) (registry.Registry, func() int) {
			fake := registrytest.NewFake(process{s, longLease})
			fake.Fail(registrytest.Match{}, errors.New("503 try later"))
			return wrap(s.driver(fake)), func() int { return len(fake.Calls(registrytest.Match{})) }
		},
		Secrets: []string{"hunter2"},
		Lacks:   map[registrytest.Capability]string{},
	}
}

func asItIs(d rich) registry.Registry { return d }

func TestADriverWithEverythingPasses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		set    func(*store)
	}{
		"durable":  {"nothing may be skipped", func(*store) {}},
		"volatile": {"a registry may forget", func(s *store) { s.volatile = true }},
		"lagging":  {"a list may lag, and is waited for", func(s *store) { s.lags = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			tc.set(s)
			h := overStore(s, asItIs)
			if s.volatile {
				h.Lacks[registrytest.Durable] = "it forgets"
			}
			registrytest.Run(t, h)
		})
	}
}

// now reads the store past its lag.
func (p process) now(ctx context.Context, cluster string) ([]registry.Entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(ctx); err != nil {
		return nil, err
	}
	return p.kept.List(ctx, cluster)
}
