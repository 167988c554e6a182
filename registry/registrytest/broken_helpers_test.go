package registrytest_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// broken is the memory registry with some methods replaced.
type broken struct {
	backend
	register, failOver, deregister func(context.Context, registry.Instance) error
	list                           func(context.Context, string) ([]registry.Entry, error)
	deaf                           bool // to its context
}

func (b broken) Register(ctx context.Context, in registry.Instance) error {
	return b.do(ctx, in, b.register, b.backend.Register)
}

func (b broken) FailOver(ctx context.Context, in registry.Instance) error {
	return b.do(ctx, in, b.failOver, b.backend.FailOver)
}

func (b broken) Deregister(ctx context.Context, in registry.Instance) error {
	return b.do(ctx, in, b.deregister, b.backend.Deregister)
}

func (b broken) do(
	ctx context.Context, in registry.Instance, replaced, sound func(context.Context, registry.Instance) error,
) error {
	if b.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if replaced == nil {
		return sound(ctx, in)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return replaced(ctx, in)
}

func (b broken) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if b.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if b.list == nil {
		return b.backend.List(ctx, cluster)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.list(ctx, cluster)
}

func wrapped(wrap func(backend) registry.Registry) func(*testing.T) registrytest.Harness {
	return func(t *testing.T) registrytest.Harness {
		t.Helper()
		return overMemory(t, wrap)
	}
}

// newMemoryFor is newMemory for a harness's functions.
func newMemoryFor(t registrytest.T) backend {
	t.Helper()
	r, err := memory.New(t.Context(), registry.Config{Cluster: "test"})
	if err != nil {
		t.Fatalf("making the memory registry: %v", err)
	}
	return bare{r.(backend)}
}

// failing makes drivers whose every call fails with err.
func failing(err error) func(registrytest.T) registry.Registry {
	return func(registrytest.T) registry.Registry { return failed{func(context.Context) error { return err }} }
}

// failed is a driver whose every call ends as answer does.
type failed struct{ answer func(context.Context) error }

func (f failed) Register(ctx context.Context, _ registry.Instance) error   { return f.answer(ctx) }
func (f failed) FailOver(ctx context.Context, _ registry.Instance) error   { return f.answer(ctx) }
func (f failed) Deregister(ctx context.Context, _ registry.Instance) error { return f.answer(ctx) }
func (f failed) List(ctx context.Context, _ string) ([]registry.Entry, error) {
	return nil, f.answer(ctx)
}

// find returns the entry at the instance's identity, whoever's it is.
func find(ctx context.Context, b registry.Lister, in registry.Instance) (registry.Entry, bool) {
	entries, _ := b.List(ctx, in.Cluster)
	i := slices.IndexFunc(entries, func(e registry.Entry) bool {
		return e.Service == in.Service && e.Endpoint() == in.Endpoint()
	})
	if i < 0 {
		return registry.Entry{}, false
	}
	return entries[i], true
}

// asMarked returns the instance that has the identity now, so that its mark fits.
func asMarked(ctx context.Context, b registry.Lister, in registry.Instance) registry.Instance {
	if e, known := find(ctx, b, in); known {
		return e.Instance
	}
	return in
}

// late remembers one registration, and makes it only when the next one comes.
type late struct {
	mu      sync.Mutex
	pending *registry.Instance
}

func (l *late) register(ctx context.Context, b backend, in registry.Instance) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.pending
	l.pending = &in
	if before == nil {
		return nil
	}
	return b.Register(ctx, *before)
}

// remembering acts only on what it registered itself.
type remembering struct {
	backend
	mu    sync.Mutex
	known map[string]bool
}

func newRemembering(b backend) *remembering {
	return &remembering{backend: b, known: map[string]bool{}}
}

func (r *remembering) Register(ctx context.Context, in registry.Instance) error {
	r.mu.Lock()
	r.known[in.UID] = true
	r.mu.Unlock()
	return r.backend.Register(ctx, in)
}

func (r *remembering) FailOver(ctx context.Context, in registry.Instance) error {
	return r.ifKnown(ctx, in, r.backend.FailOver)
}

func (r *remembering) Deregister(ctx context.Context, in registry.Instance) error {
	return r.ifKnown(ctx, in, r.backend.Deregister)
}

func (r *remembering) ifKnown(
	ctx context.Context, in registry.Instance, do func(context.Context, registry.Instance) error,
) error {
	r.mu.Lock()
	known := r.known[in.UID]
	r.mu.Unlock()
	if !known {
		return ctx.Err()
	}
	return do(ctx, in)
}

// sliced keeps its entries in a slice, which it changes by reading all and writing all.
type sliced struct {
	mu       sync.Mutex
	entries  []registry.Entry
	appends  bool // at each Register, where a sound driver overwrites
	unlocked bool // between the reading and the writing
}

func (s *sliced) change(ctx context.Context, edit func([]registry.Entry) []registry.Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	edited := edit(slices.Clone(s.entries))
	if s.unlocked {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	s.entries = edited
	return nil
}

func (s *sliced) index(entries []registry.Entry, in registry.Instance) int {
	return slices.IndexFunc(entries, func(e registry.Entry) bool {
		return e.Service == in.Service && e.Endpoint() == in.Endpoint()
	})
}

func (s *sliced) Register(ctx context.Context, in registry.Instance) error {
	return s.change(ctx, func(entries []registry.Entry) []registry.Entry {
		in.Metadata = maps.Clone(in.Metadata)
		registered := registry.Entry{Instance: in, State: registry.InService}
		if i := s.index(entries, in); i >= 0 && !s.appends {
			entries[i] = registered
			return entries
		}
		return append(entries, registered)
	})
}

func (s *sliced) FailOver(ctx context.Context, in registry.Instance) error {
	return s.change(ctx, func(entries []registry.Entry) []registry.Entry {
		if i := s.index(entries, in); i >= 0 && in.Owns(entries[i].UID, entries[i].Registry) {
			entries[i].State = registry.OutOfService
		}
		return entries
	})
}

func (s *sliced) Deregister(ctx context.Context, in registry.Instance) error {
	return s.change(ctx, func(entries []registry.Entry) []registry.Entry {
		if i := s.index(entries, in); i >= 0 && in.Owns(entries[i].UID, entries[i].Registry) {
			return slices.Delete(entries, i, i+1)
		}
		return entries
	})
}

func (s *sliced) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := slices.DeleteFunc(slices.Clone(s.entries), func(e registry.Entry) bool { return e.Cluster != cluster })
	for i := range own {
		own[i].Metadata = maps.Clone(own[i].Metadata)
	}
	return own, nil
}

func overSliced(s *sliced) func(*testing.T) registrytest.Harness {
	return func(t *testing.T) registrytest.Harness {
		t.Helper()
		h := overMemory(t, func(backend) registry.Registry { return s })
		h.Truth = s.List
		return h
	}
}

// removesByAddress removes everything that has the address, of whatever service, port and pod.
func removesByAddress(ctx context.Context, b backend, in registry.Instance) error {
	entries, err := b.List(ctx, in.Cluster)
	for _, e := range entries {
		if e.Address == in.Address {
			err = cmp.Or(err, b.Deregister(ctx, e.Instance))
		}
	}
	return err
}

// removesUnderTheHand looks at the mark, takes its time, and then removes whatever is there.
func removesUnderTheHand(ctx context.Context, b backend, in registry.Instance) error {
	if e, known := find(ctx, b, in); !known || !in.Owns(e.UID, e.Registry) {
		return nil
	}
	time.Sleep(time.Millisecond)
	return b.Deregister(ctx, asMarked(ctx, b, in))
}

// listsByPrefix is over a registry whose filter compares the beginning of the cluster's name.
func listsByPrefix(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	registered := map[string]registry.Instance{}
	return overMemory(t, func(b backend) registry.Registry {
		return broken{
			backend: b,
			register: func(ctx context.Context, in registry.Instance) error {
				mu.Lock()
				registered[in.Service+" "+in.Endpoint()] = in
				mu.Unlock()
				return b.Register(ctx, in)
			},
			list: func(_ context.Context, cluster string) (entries []registry.Entry, _ error) {
				mu.Lock()
				defer mu.Unlock()
				for _, in := range registered {
					if len(in.Cluster) >= len(cluster) && in.Cluster[:len(cluster)] == cluster {
						entries = append(entries, registry.Entry{Instance: in, State: registry.InService})
					}
				}
				return entries, nil
			},
		}
	})
}

// neverAnswers is over a registry that hangs, with a driver that does not look at its context.
func neverAnswers(t *testing.T) registrytest.Harness {
	t.Helper()
	h := overMemory(t, func(b backend) registry.Registry { return b })
	delete(h.Lacks, registrytest.Stalled)
	h.Stalled = func(t registrytest.T) registry.Registry {
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		return failed{func(context.Context) error {
			<-end
			return nil
		}}
	}
	return h
}

// retriesByItself is over a registry that always fails, with a driver that registers twice.
func retriesByItself(t *testing.T) registrytest.Harness {
	t.Helper()
	h := overMemory(t, func(b backend) registry.Registry { return b })
	delete(h.Lacks, registrytest.Failing)
	h.Failing = func(registrytest.T) (registry.Registry, func() int) {
		var attempts atomic.Int64
		once := failed{func(context.Context) error {
			attempts.Add(1)
			return errors.New("503 try later")
		}}
		retrying := broken{backend: once, register: func(ctx context.Context, in registry.Instance) error {
			if err := once.Register(ctx, in); err == nil {
				return nil
			}
			return once.Register(ctx, in)
		}}
		return retrying, func() int { return int(attempts.Load()) }
	}
	return h
}

func unreachableIsTerminal(t *testing.T) registrytest.Harness {
	t.Helper()
	h := overMemory(t, func(b backend) registry.Registry { return b })
	delete(h.Lacks, registrytest.Unreachable)
	h.Unreachable = failing(registry.Terminal(errors.New("connection refused")))
	return h
}

func refusedIsRetryable(t *testing.T) registrytest.Harness {
	t.Helper()
	h := overMemory(t, func(b backend) registry.Registry { return b })
	delete(h.Lacks, registrytest.Refusing)
	h.Refusing = failing(errors.New("403 forbidden"))
	return h
}
