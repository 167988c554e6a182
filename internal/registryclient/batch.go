package registryclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// 12 calls within 200 ms are a storm.
	crowdSize  = 12
	crowdedFor = 200 * time.Millisecond
	// Between the waves of a storm all workers wait for the API server.
	calm = time.Second
	// A batch is sent when it has 48 calls, 100 ms after its last, or 250 ms after its first (50 ms between waves).
	company = 48
	gap     = 100 * time.Millisecond
	lull    = 50 * time.Millisecond
	linger  = 250 * time.Millisecond
	// A call waits at most 1/4 of its time.
	patience = 4
	// apartFor is how long a service that held up a batch stays out of batches.
	apartFor = time.Minute
)

// joiner batches the calls of a storm. Others, and those of a service that recently held up a batch, are made immediately.
type joiner struct {
	single  registry.Registry
	batcher registry.Batcher
	slots   func() int
	caught  func(func() error) error

	mu sync.Mutex
	// recent is a ring; next is the oldest.
	recent  [crowdSize]time.Time
	next    int
	stormed time.Time
	// waiting is the next batch; its first call came at since.
	waiting []*joined
	since   time.Time
	timer   *time.Timer
	apart   map[serviceKey]time.Time
}

// serviceKey tells the services of two places apart.
type serviceKey struct{ place, name string }

func serviceOf(in registry.Instance) serviceKey { return serviceKey{in.Place, in.Service} }

type joined struct {
	ctx    context.Context //nolint:containedctx // the caller's, who waits for done
	change registry.Change
	done   chan error
}

func newJoiner(single registry.Registry, batcher registry.Batcher, slots func() int, caught func(func() error) error) *joiner {
	return &joiner{single: single, batcher: batcher, slots: slots, caught: caught, apart: map[serviceKey]time.Time{}}
}

// join waits for the outcome. Only its deadline ends the context; see [Options.bound].
func (j *joiner) join(ctx context.Context, change registry.Change) error {
	own := &joined{ctx: ctx, change: change, done: make(chan error, 1)}
	if !j.enter(own, time.Now()) { //nolint:contextcheck // a batch has the contexts of its calls
		return j.alone(ctx, change)
	}
	if err := <-own.done; registry.CodeOf(err) != registry.CodeNotApplied {
		return err
	}
	return j.alone(ctx, change)
}

func (j *joiner) alone(ctx context.Context, change registry.Change) error {
	err := change.Make(ctx, j.single)
	if err != nil && ctx.Err() != nil {
		j.keepApart(change)
	}
	return err
}

// enter reports whether the call joins the next batch: at most one per endpoint, and all in one place, so that a place that hangs holds up
// no other's. The driver may learn its limit late.
func (j *joiner) enter(own *joined, now time.Time) bool {
	limit := j.batcher.BatchLimit()
	if limit < 2 {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if now.Sub(j.recent[j.next]) < crowdedFor {
		j.stormed = now
	}
	j.recent[j.next], j.next = now, (j.next+1)%crowdSize
	in := own.change.Instance
	if now.Sub(j.stormed) >= calm || len(j.waiting) >= limit || now.Before(j.apart[serviceOf(in)]) {
		return false
	}
	if slices.ContainsFunc(j.waiting, func(other *joined) bool {
		there := other.change.Instance
		return there.Place != in.Place || there.Service == in.Service && there.Endpoint() == in.Endpoint()
	}) {
		return false
	}
	if j.waiting = append(j.waiting, own); len(j.waiting) == 1 {
		j.since, j.timer = now, time.AfterFunc(gap, j.send)
	}
	// Waiting calls hold slots, of which a service has at most half.
	if len(j.waiting) >= min(company, limit, j.slots()/2) {
		go j.carryOut(j.take()) // the next call begins another batch
	} else {
		j.timer.Reset(j.waitsFor(own, now))
	}
	return true
}

// take needs the lock.
func (j *joiner) take() []*joined {
	batch := j.waiting
	j.waiting = nil
	j.timer.Stop()
	return batch
}

// waitsFor is how long the batch waits after its last call.
func (j *joiner) waitsFor(last *joined, now time.Time) time.Duration {
	longest := linger
	if !now.Equal(j.stormed) {
		longest = lull
	}
	deadline, _ := last.ctx.Deadline()
	return min(gap, j.since.Add(longest).Sub(now), deadline.Sub(now)/patience)
}

func (j *joiner) send() {
	j.mu.Lock()
	batch := j.take()
	j.mu.Unlock()
	if len(batch) > 0 {
		j.carryOut(batch)
	}
}

// carryOut applies the earliest deadline to the whole batch.
func (j *joiner) carryOut(batch []*joined) {
	if len(batch) == 1 {
		batch[0].done <- j.caught(func() error { return j.alone(batch[0].ctx, batch[0].change) })
		return
	}
	changes := make([]registry.Change, 0, len(batch))
	earliest, _ := batch[0].ctx.Deadline()
	for _, call := range batch {
		changes = append(changes, call.change)
		if deadline, _ := call.ctx.Deadline(); deadline.Before(earliest) {
			earliest = deadline
		}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(batch[0].ctx), earliest)
	defer cancel()
	errs := j.outcomes(ctx, changes)
	late := ctx.Err()
	undone := slices.ContainsFunc(errs, func(err error) bool { return registry.CodeOf(err) == registry.CodeNotApplied })
	for i, call := range batch {
		err := errors.New("the driver returned no outcome for a change in a batch")
		if i < len(errs) {
			err = errs[i]
		}
		if err != nil && (late != nil || undone && registry.CodeOf(err) != registry.CodeNotApplied) {
			j.keepApart(call.change)
		}
		if err != nil && late != nil { // it may still take effect, even before its own deadline
			err = fmt.Errorf("%w (the batch: %w)", err, late)
		}
		call.done <- err
	}
}

// outcomes keeps all services of a batch apart if the driver panics.
func (j *joiner) outcomes(ctx context.Context, changes []registry.Change) (errs []error) {
	err := j.caught(func() error {
		errs = j.batcher.Batch(ctx, changes)
		return nil
	})
	if err == nil {
		return errs
	}
	for _, c := range changes {
		j.keepApart(c)
	}
	return slices.Repeat([]error{err}, len(changes))
}

func (j *joiner) keepApart(change registry.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(j.apart, func(_ serviceKey, until time.Time) bool { return !now.Before(until) })
	j.apart[serviceOf(change.Instance)] = now.Add(apartFor)
}
