package registrytest_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
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
	lags     time.Duration
	wrong    error // what it answers while it is away

	mu      sync.Mutex
	kept    backend
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

// process is a driver of all capabilities over the store, which asks for a lease.
type process struct {
	*store
	lease time.Duration
	fault func(context.Context) error // each call ends as it does; nil: the store answers
}

func (p process) Register(ctx context.Context, in registry.Instance) error {
	return p.change(ctx, in, backend.Register)
}

func (p process) FailOver(ctx context.Context, in registry.Instance) error {
	return p.change(ctx, in, backend.FailOver)
}

func (p process) Deregister(ctx context.Context, in registry.Instance) error {
	return p.change(ctx, in, backend.Deregister)
}

// change carries a call out on what is kept when the lock is held: a restart puts another backend there.
func (p process) change(
	ctx context.Context, in registry.Instance, do func(backend, context.Context, registry.Instance) error,
) error {
	return p.ask(ctx, func() error {
		p.lend(in)
		return do(p.kept, ctx, in)
	})
}

// ask answers a call with the store locked and without what has expired.
func (p process) ask(ctx context.Context, answer func() error) error {
	if p.fault != nil {
		return p.fault(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(ctx); err != nil {
		return err
	}
	return answer()
}

func (p process) List(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	err = p.ask(ctx, func() (err error) {
		if a := p.answers[cluster]; time.Since(a.from) < p.lags {
			entries = slices.Clone(a.entries)
			return nil
		}
		entries, err = p.kept.List(ctx, cluster)
		p.answers[cluster] = answer{entries: slices.Clone(entries), from: time.Now()}
		return err
	})
	return entries, err
}

// now reads the store past its lag.
func (p process) now(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	err = p.ask(ctx, func() error {
		entries, err = p.kept.List(ctx, cluster)
		return err
	})
	return entries, err
}

// Get looks past the list, which may lag.
func (p process) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = p.ask(ctx, func() error {
		state = registry.Absent
		if e, known := find(ctx, p.kept, in); known && in.Owns(e.UID, e.Registry) {
			state = e.State
		}
		return nil
	})
	return state, err
}

// Probe looks past the list, which may lag.
func (p process) Probe(ctx context.Context, in registry.Instance) error {
	return p.ask(ctx, func() error {
		if e, known := find(ctx, p.kept, in); !known || e.UID != in.UID || e.State != registry.InService {
			return errors.New("clients are not given it")
		}
		return nil
	})
}

func (p process) Heartbeat(ctx context.Context, in registry.Instance) error {
	return p.ask(ctx, func() error {
		if e, known := find(ctx, p.kept, in); !known || e.UID != in.UID {
			return registry.NotRegistered(errors.New("404 no such instance"))
		}
		p.lend(in)
		return nil
	})
}

func (p process) HeartbeatInterval() time.Duration { return interval }

func (p process) BatchLimit() int { return 5 }

func (p process) Batch(ctx context.Context, changes []registry.Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		if errs[i] = c.Check(); errs[i] == nil {
			errs[i] = c.Make(ctx, p)
		}
	}
	return errs
}

func (p process) Staleness() time.Duration {
	if p.lags > 0 {
		return lag
	}
	return 0
}

func (p process) Close() error { return nil }

// lend begins a lease, or begins it anew. The caller holds the lock.
func (p process) lend(in registry.Instance) {
	until := time.Now().Add(p.lease)
	p.leases[leaseKey(in)] = lease{in: in, until: until}
	if p.soonest.IsZero() || until.Before(p.soonest) {
		p.soonest = until
	}
}

// expire removes what was not renewed. The caller holds the lock.
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

// overStore is the harness of a wrapper of one store. A wrapper is made anew for each process.
func overStore(s *store, wrap func(rich) registry.Registry) registrytest.Harness {
	open := func(lease time.Duration) func(registrytest.T, string) registry.Registry {
		return func(registrytest.T, string) registry.Registry { return wrap(process{store: s, lease: lease}) }
	}
	faulty := func(fault func(context.Context) error) registry.Registry {
		return wrap(process{store: s, lease: longLease, fault: fault})
	}
	failing := func(err error) func(registrytest.T) registry.Registry {
		return func(registrytest.T) registry.Registry {
			return faulty(func(context.Context) error { return err })
		}
	}
	return registrytest.Harness{
		Open:             open(longLease),
		ShortLease:       open(shortLease),
		Restart:          s.restart,
		Unreachable:      failing(errors.New("connection refused")),
		Refusing:         failing(registry.Terminal(errors.New("frozen"))),
		WrongCredentials: failing(registry.Terminal(registry.FieldError("auth.tokenFile", errors.New("403")))),
		Stalled: func(registrytest.T) registry.Registry {
			return faulty(func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		},
		Failing: func(registrytest.T) (registry.Registry, func() int) {
			var attempts atomic.Int64
			d := faulty(func(context.Context) error {
				attempts.Add(1)
				return errors.New("503 try later")
			})
			return d, func() int { return int(attempts.Load()) }
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
		"lagging":  {"a list may lag, and is waited for", func(s *store) { s.lags = lag }},
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
