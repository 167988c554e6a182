package registryclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"is skipped for a call that finds a free lane": func(t *testing.T) {
			b := newBatches(100, 0)
			for i := range 10 {
				waitAll(t, b.start(t.Context(), i))
			}
			b.expect(t, 10, 0)
		},
		"joins a storm": func(t *testing.T) {
			b := newBatches(10, time.Second)
			waitAll(t, b.startAll(t.Context(), 64)...)
			b.expect(t, lanes, 6)
			for i := range 64 {
				if n := b.times(i); n != 1 {
					t.Errorf("change %d was made %d times", i, n)
				}
			}
		},
		"gives each call an outcome": func(t *testing.T) {
			b := newBatches(10, time.Second)
			wrong := errors.New("wrong")
			b.fail = map[int]error{lanes + 1: registry.Terminal(wrong), lanes + 2: registry.NotApplied(wrong)}
			for i, p := range b.startAll(t.Context(), lanes+4) {
				err := <-p
				if refused := i == lanes+1; refused != registry.IsTerminal(err) || !refused && err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}
			if b.expect(t, lanes+1, 1); b.times(lanes+2) != 1 {
				t.Error("the change that was not applied because of another was not made by itself")
			}
		},
		"has one change of an identity": func(t *testing.T) {
			b := newBatches(10, time.Second)
			all := b.startAll(t.Context(), lanes)
			for range 3 {
				all = append(all, b.start(t.Context(), 100), b.start(t.Context(), 101))
			}
			waitAll(t, all...)
			if b.doubled {
				t.Error("a batch had two changes of one instance, whose order the registry may choose")
			}
			if one, other := b.times(100), b.times(101); one != 3 || other != 3 {
				t.Errorf("made %d and %d changes, want 3 of each", one, other)
			}
		},
		"is left where the registry is slow": func(t *testing.T) {
			b := newBatches(10, 3*time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			waitAll(t, b.startAll(ctx, 20)...) // each would have succeeded by itself
			b.expect(t, 20, 0)
		},
		"of a service that hangs holds up no other": func(t *testing.T) {
			b := newBatches(10, time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			b.startAll(ctx, 2*lanes)
			b.set(func() { b.latency = time.Second })
			began := time.Now()
			if err := b.join(ctx, registering("api", 99)); err != nil || time.Since(began) != time.Second {
				t.Errorf("the other service's call took %s (%v), want a second as by itself", time.Since(began), err)
			}
			<-ctx.Done()
			synctest.Wait()
			if j := b.joiner; len(j.busy)+len(j.waiting) > 0 {
				t.Errorf("kept of services without a call: %v, %v", j.busy, j.waiting)
			}
		},
		"makes a call once": func(t *testing.T) {
			b := newBatches(10, time.Second)
			b.startAll(t.Context(), lanes)
			b.set(func() { b.latency = 5 * time.Second })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			one, other := b.start(ctx, 10), b.start(ctx, 11)
			waitAll(t, one, other)
			time.Sleep(time.Minute)
			if b.expect(t, lanes, 1); b.times(10) != 1 || b.times(11) != 1 {
				t.Errorf("made %d and %d calls, want one of each: there was no time to lose", b.times(10), b.times(11))
			}
		},
		"ends with the time of its first caller": func(t *testing.T) {
			for _, forgets := range []bool{false, true} {
				b := newBatches(10, time.Hour)
				b.forgets = forgets
				b.startAll(t.Context(), lanes)
				b.set(func() { b.latency = 100 * time.Hour })
				short, cancel := context.WithTimeout(t.Context(), 5*time.Hour)
				defer cancel()
				began := time.Now()
				for _, p := range []<-chan error{b.start(t.Context(), 9), b.start(short, 10), b.start(t.Context(), 11)} {
					err := <-p
					var timeout interface{ Timeout() bool }
					if !errors.As(err, &timeout) || !timeout.Timeout() || registry.IsTerminal(err) {
						t.Errorf("got %v, want an error that says that the call may still be carried out", err)
					}
				}
				if took := time.Since(began); took != 5*time.Hour {
					t.Errorf("the batch ended after %s, want 5h, when the time of one caller is up", took)
				}
			}
		},
		"of limit one is none": func(t *testing.T) {
			b := newBatches(1, time.Second)
			c := New(batching{direct{b}, b}, Options{Timeout: time.Minute, MaxInFlight: 100})
			began := time.Now()
			var all []<-chan error
			for i := range 3 * lanes {
				all = append(all, inBackground(func() error { return c.Change(t.Context(), Caller{}, registering("web", i)) }))
			}
			waitAll(t, all...)
			if took := time.Since(began); took > b.latency {
				t.Errorf("calls that can't be joined waited for one another: all took %s, want %s", took, b.latency)
			}
		},
		"without outcomes is no success": func(t *testing.T) {
			b := newBatches(10, time.Second)
			b.forgets = true
			for i, p := range b.startAll(t.Context(), lanes+3) {
				if err := <-p; (err != nil) != (i >= lanes) {
					t.Errorf("call %d: %v", i, err)
				}
			}
		},
	})
}

// batches is a registry that takes batches and a while for each call.
type batches struct {
	*joiner
	limit int

	mu      sync.Mutex
	latency time.Duration
	fail    map[int]error
	// forgets has it give no outcomes.
	forgets bool
	doubled bool
	single  map[int]int
	made    map[int]int
	batches int
}

func newBatches(limit int, latency time.Duration) *batches {
	b := &batches{limit: limit, latency: latency, single: map[int]int{}, made: map[int]int{}}
	b.joiner = newJoiner(direct{b}, b)
	return b
}

// batching is a driver's registry with batches.
type batching struct {
	registry.Registry
	registry.Batcher
}

func registering(service string, port int) registry.Change {
	return registry.Change{
		Instance: registry.Instance{Service: service, Address: "10.0.0.1", Port: port}, State: registry.InService,
	}
}

// inBackground makes a call, and returns what takes its outcome.
func inBackground(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	synctest.Wait()
	return done
}

func (b *batches) start(ctx context.Context, number int) <-chan error {
	return inBackground(func() error {
		ctx, cancel := context.WithTimeout(ctx, testTimeout*1000)
		defer cancel()
		return b.join(ctx, registering("web", number))
	})
}

// startAll begins so many calls.
func (b *batches) startAll(ctx context.Context, n int) (all []<-chan error) {
	for i := range n {
		all = append(all, b.start(ctx, i))
	}
	return all
}

func waitAll(t *testing.T, all ...<-chan error) {
	t.Helper()
	for i, done := range all {
		if err := <-done; err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func (b *batches) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// times returns how often the change of an instance was made.
func (b *batches) times(number int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made[number]
}

func (b *batches) expect(t *testing.T, singles, joined int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.single) != singles || b.batches != joined {
		t.Errorf("made %d calls by themselves and %d batches, want %d and %d", len(b.single), b.batches, singles, joined)
	}
}

func (b *batches) pass(ctx context.Context) error {
	b.mu.Lock()
	latency := b.latency
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(latency):
		return nil
	}
}

func (b *batches) BatchLimit() int { return b.limit }

func (b *batches) Batch(ctx context.Context, changes []registry.Change) []error {
	errs := make([]error, len(changes))
	cut := b.pass(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches++
	var ports []int
	for i, c := range changes {
		port := c.Instance.Port
		b.doubled = b.doubled || slices.Contains(ports, port) || len(changes) > b.limit
		ports = append(ports, port)
		if errs[i] = b.fail[port]; cut != nil {
			errs[i] = fmt.Errorf("calling: %w", cut)
		}
		if errs[i] == nil {
			b.made[port]++
		}
	}
	if b.forgets {
		return nil
	}
	return errs
}

// direct makes calls by themselves.
type direct struct{ *batches }

func (d direct) Register(ctx context.Context, in registry.Instance) error {
	if err := d.pass(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.single[in.Port]++
	d.made[in.Port]++
	return nil
}

func (d direct) FailOver(ctx context.Context, in registry.Instance) error { return d.Register(ctx, in) }
func (d direct) Deregister(ctx context.Context, in registry.Instance) error {
	return d.Register(ctx, in)
}
