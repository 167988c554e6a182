package registryclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"is not for calls that come one by one": func(t *testing.T) {
			b := newBatches(100, 5*time.Millisecond)
			began := time.Now()
			for i := range 4 * crowdSize {
				waitAll(t, b.start(t.Context(), i))
				time.Sleep(20 * time.Millisecond) // 40 in a second
			}
			b.expect(t, 4*crowdSize, 0)
			if took := time.Since(began); took != 4*crowdSize*25*time.Millisecond {
				t.Errorf("calls without company took %s, so one has waited for company", took)
			}
		},
		"joins a storm, of all services": func(t *testing.T) {
			b := newBatches(1000, 5*time.Millisecond)
			var all []<-chan error
			for i := range 1000 {
				all = append(all, b.startFor(t.Context(), serviceKey{name: fmt.Sprint(i % 10)}, i))
				time.Sleep(5 * time.Millisecond)
			}
			waitAll(t, all...)
			for i := range 1000 {
				if n := b.times(i); n != 1 {
					t.Errorf("change %d was made %d times", i, n)
				}
			}
			if calls := len(b.single) + b.batches; calls > 40 {
				t.Errorf("1,000 changes in 5 s took %d calls, want at most 40", calls)
			}
		},
		"joins the waves of a storm": func(t *testing.T) {
			b := newBatches(1000, 5*time.Millisecond)
			b.slots = func() int { return config.DefaultMaxInFlight }
			const wave, pods = 125, 1000 // nearly as many as there are workers
			for from := 0; from < pods; from += wave {
				var all []<-chan error
				for i := range wave {
					all = append(all, b.startFor(t.Context(), serviceKey{name: fmt.Sprint(i % 10)}, from+i))
				}
				waitAll(t, all...)
				time.Sleep(wave * 4 * time.Millisecond) // the API server's, for their patches
			}
			if calls := len(b.single) + b.batches; calls > 40 {
				t.Errorf("1,000 changes in 8 waves took %d calls, want at most 40", calls)
			}
		},
		"waits no longer than a moment after a storm": func(t *testing.T) {
			b := newBatches(1000, 5*time.Millisecond)
			waitAll(t, b.startAll(t.Context(), crowdSize+1)...)
			time.Sleep(crowdedFor)
			for began := time.Now(); time.Since(began) < calm; time.Sleep(25 * time.Millisecond) {
				called := time.Now()
				waitAll(t, b.start(t.Context(), 100))
				if took := time.Since(called); took > lull+5*time.Millisecond {
					t.Fatalf("a call among few took %s after a storm", took)
				}
			}
		},
		"goes when no other call comes": func(t *testing.T) {
			b := newBatches(1000, time.Millisecond)
			began := time.Now()
			waitAll(t, b.startAll(t.Context(), crowdSize+3)...)
			if b.expect(t, crowdSize, 1); time.Since(began) != gap+time.Millisecond {
				t.Errorf("the batch took %s, want no longer than until no other call came", time.Since(began))
			}
		},
		"goes when it has all that there is room for": func(t *testing.T) {
			b := newBatches(1000, time.Millisecond)
			b.slots = func() int { return 16 }
			began := time.Now()
			waitAll(t, b.startAll(t.Context(), crowdSize+8)...)
			if b.expect(t, crowdSize, 1); time.Since(began) != time.Millisecond {
				t.Errorf("the batch took %s, although no other call could come", time.Since(began))
			}
		},
		"is of one place": func(t *testing.T) {
			b := newBatches(1000, time.Millisecond)
			waitAll(t, b.startAll(t.Context(), crowdSize)...)
			var all []<-chan error
			for i, of := range []serviceKey{{"a", "web"}, {"b", "web"}, {"a", "api"}, {"b", "api"}} {
				all = append(all, b.startFor(t.Context(), of, crowdSize+i))
			}
			waitAll(t, all...)
			b.expect(t, crowdSize+2, 1) // a place that hangs holds up no other
		},
		"has no more than the driver takes": func(t *testing.T) {
			b := newBatches(10, time.Second)
			waitAll(t, b.startAll(t.Context(), crowdSize+30)...)
			if b.expect(t, crowdSize, 3); b.doubled {
				t.Error("a batch was larger than that")
			}
		},
		"has no more than the driver takes, of calls at the same moment": func(t *testing.T) {
			b := newBatches(10, time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for i := range crowdSize + 30 {
				all.Go(func() { _ = b.join(ctx, registering("web", i)) })
			}
			all.Wait()
			if b.expect(t, crowdSize, 3); b.doubled {
				t.Error("a batch was larger than that")
			}
		},
		"gives each call an outcome": func(t *testing.T) {
			b := newBatches(10, time.Second)
			wrong := errors.New("wrong")
			b.fail = map[int]error{crowdSize + 1: registry.Terminal(wrong), crowdSize + 2: registry.NotApplied(wrong)}
			for i, p := range b.startAll(t.Context(), crowdSize+4) {
				err := <-p
				if refused := i == crowdSize+1; refused != (registry.CodeOf(err) == registry.CodeTerminal) || !refused && err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}
			if b.expect(t, crowdSize+1, 1); b.times(crowdSize+2) != 1 {
				t.Error("the change that was not applied because of another was not made by itself")
			}
		},
		"has one change of an identity": func(t *testing.T) {
			b := newBatches(10, time.Second)
			all := b.startAll(t.Context(), crowdSize)
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
		"is left by a service that holds up others": func(t *testing.T) {
			b := newBatches(10, time.Millisecond)
			b.hangs = map[string]bool{"web": true}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for i := range crowdSize {
				b.startFor(ctx, serviceKey{name: "api"}, i)
			}
			first := []<-chan error{b.startFor(ctx, serviceKey{name: "api"}, 50), b.startFor(ctx, serviceKey{name: "web"}, 51)}
			if err := <-first[0]; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call that hangs left its batch: %v", err)
			}
			for i := range crowdSize { // the next storm, within a minute
				b.startFor(t.Context(), serviceKey{name: "db"}, i)
			}
			began := time.Now()
			hanging := b.startFor(t.Context(), serviceKey{name: "web"}, 52)
			waitAll(t, b.startFor(t.Context(), serviceKey{name: "db"}, 53), b.startFor(t.Context(), serviceKey{name: "db"}, 54))
			if took := time.Since(began); took > gap+time.Millisecond {
				t.Errorf("calls of other services took %s, so the service that hangs held them up again", took)
			}
			if err := <-hanging; err == nil {
				t.Error("the call that hangs succeeded")
			}
		},
		"is left by a service that is refused": func(t *testing.T) {
			b := newBatches(10, time.Millisecond)
			wrong := errors.New("no rights")
			b.fail = map[int]error{50: wrong, 51: registry.NotApplied(wrong)}
			b.startAll(t.Context(), crowdSize)
			for _, p := range []<-chan error{b.startFor(t.Context(), serviceKey{name: "secret"}, 50), b.start(t.Context(), 51)} {
				<-p
			}
			time.Sleep(calm)
			b.startAll(t.Context(), crowdSize)
			waitAll(t, b.startFor(t.Context(), serviceKey{name: "secret"}, 52), b.start(t.Context(), 53), b.start(t.Context(), 54))
			if b.expect(t, crowdSize+2, 2); b.single[52] != 1 {
				t.Error("a service whose change undid those of others was in a batch with them again")
			}
			waitAll(t, b.startFor(t.Context(), serviceKey{"b", "secret"}, 55), b.startFor(t.Context(), serviceKey{"b", "web"}, 56))
			b.expect(t, crowdSize+2, 3) // what has its name in another place is another service
		},
		"waits for a part of a call's time at most": func(t *testing.T) {
			b := newBatches(10, time.Millisecond)
			b.startAll(t.Context(), crowdSize)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			defer cancel()
			waitAll(t, b.start(ctx, 20), b.start(ctx, 21))
			b.expect(t, crowdSize, 1)
		},
		"ends with the time of its first caller": func(t *testing.T) {
			for _, forgets := range []bool{false, true} {
				b := newBatches(10, time.Millisecond)
				b.forgets = forgets
				waitAll(t, b.startAll(t.Context(), crowdSize)...)
				b.set(func() { b.latency = 100 * time.Hour })
				short, cancel := context.WithTimeout(t.Context(), 5*time.Hour)
				defer cancel()
				began := time.Now()
				for _, p := range []<-chan error{b.start(t.Context(), 19), b.start(short, 20), b.start(t.Context(), 21)} {
					err := <-p
					var timeout interface{ Timeout() bool }
					if !errors.As(err, &timeout) || !timeout.Timeout() || registry.CodeOf(err) == registry.CodeTerminal {
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
			c.limit.adaptive.slots = 100
			began := time.Now()
			var all []<-chan error
			for i := range 3 * crowdSize {
				all = append(all, inBackground(func() error { return c.Change(t.Context(), Caller{}, registering("web", i)) }))
			}
			waitAll(t, all...)
			if took := time.Since(began); took > b.latency {
				t.Errorf("calls that can't be joined waited for one another: all took %s, want %s", took, b.latency)
			}
		},
		"of a limit that is learnt later": func(t *testing.T) {
			b := newBatches(1, time.Second)
			waitAll(t, b.startAll(t.Context(), crowdSize+3)...)
			b.expect(t, crowdSize+3, 0)
			b.limit = 10
			waitAll(t, b.startAll(t.Context(), crowdSize+3)...)
			b.expect(t, crowdSize+3, 1)
		},
		"that panics fails, and its calls go by themselves after that": func(t *testing.T) {
			b := newBatches(10, time.Millisecond)
			waitAll(t, b.startAll(t.Context(), crowdSize)...)
			b.panics = true
			for _, p := range []<-chan error{b.start(t.Context(), 20), b.start(t.Context(), 21)} {
				if err := <-p; err == nil || !strings.Contains(err.Error(), "the driver panicked") {
					t.Errorf("got %v, want the panic as an error", err)
				}
			}
			waitAll(t, b.start(t.Context(), 20), b.start(t.Context(), 21))
		},
		"without outcomes is no success": func(t *testing.T) {
			b := newBatches(10, time.Second)
			b.forgets = true
			for i, p := range b.startAll(t.Context(), crowdSize+3) {
				if err := <-p; (err != nil) != (i >= crowdSize) {
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
	// hangs are the services whose calls never end.
	hangs map[string]bool
	// forgets has it give no outcomes.
	forgets bool
	panics  bool
	doubled bool
	single  map[int]int
	made    map[int]int
	batches int
}

func newBatches(limit int, latency time.Duration) *batches {
	b := &batches{limit: limit, latency: latency, single: map[int]int{}, made: map[int]int{}}
	b.joiner = newJoiner(direct{b}, b, func() int { return 128 }, Options{}.caught)
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
	return b.startFor(ctx, serviceKey{name: "web"}, number)
}

func (b *batches) startFor(ctx context.Context, of serviceKey, number int) <-chan error {
	return inBackground(func() error {
		ctx, cancel := context.WithTimeout(ctx, testTimeout*1000)
		defer cancel()
		change := registering(of.name, number)
		change.Instance.Place = of.place
		return b.join(ctx, change)
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

func (b *batches) pass(ctx context.Context, changes ...registry.Change) error {
	b.mu.Lock()
	latency := b.latency
	if slices.ContainsFunc(changes, func(c registry.Change) bool { return b.hangs[c.Instance.Service] }) {
		latency = 10_000 * time.Hour
	}
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
	if b.panics {
		panic("a driver's mistake")
	}
	errs := make([]error, len(changes))
	cut := b.pass(ctx, changes...)
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
	if err := d.pass(ctx, registry.Change{Instance: in}); err != nil {
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
