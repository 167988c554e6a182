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
	// crowdSize is how many calls within crowdedFor make a storm, 60 in a second. Fewer wait for no company.
	crowdSize  = 12
	crowdedFor = 200 * time.Millisecond
	// A storm comes in waves, since all workers wait for the API server between their calls: it is over after calm.
	calm = time.Second
	// A batch is sent when it has company calls, when none has come for gap, or after linger: whichever comes first. Calls between
	// two waves wait no longer than lull: they may be those of an ordinary day.
	company = 48
	gap     = 100 * time.Millisecond
	lull    = 50 * time.Millisecond
	linger  = 250 * time.Millisecond
	// patience is the part of a call's time that it waits at most.
	patience = 4
	// apartFor is for how long the calls of a service are made by themselves after one of them held up others.
	apartFor = time.Minute
)

// joiner joins calls in a storm: they wait a moment for company, and go together. A call out of a storm is made at once, by
// itself. So are those of a service that has held up others: it can do so once a minute, for as long as one call may take.
type joiner struct {
	single  registry.Registry
	batcher registry.Batcher
	slots   func() int
	caught  func(func() error) error

	mu sync.Mutex
	// recent are when the last calls came, the oldest at the place of the next one.
	recent [crowdSize]time.Time
	next   int
	// stormed is when there was last a storm.
	stormed time.Time
	// waiting is the batch to come, and since when the first of it waits.
	waiting []*joined
	since   time.Time
	timer   *time.Timer
	apart   map[string]time.Time
}

// joined is one call that waits for its batch.
type joined struct {
	ctx    context.Context //nolint:containedctx // the caller's, who waits for done
	change registry.Change
	done   chan error
}

// newJoiner has slots say how many calls may be under way: no batch waits for more than a part of these. Calls are made by caught.
func newJoiner(single registry.Registry, batcher registry.Batcher, slots func() int, caught func(func() error) error) *joiner {
	return &joiner{single: single, batcher: batcher, slots: slots, caught: caught, apart: map[string]time.Time{}}
}

// join makes the call in the next batch and waits for its outcome, or makes it by itself. The context has a deadline, and
// nothing else ends it; see [Options.bound].
func (j *joiner) join(ctx context.Context, change registry.Change) error {
	own := &joined{ctx: ctx, change: change, done: make(chan error, 1)}
	if !j.enter(own, time.Now()) { //nolint:contextcheck // a batch has the contexts of its calls
		return j.alone(ctx, change)
	}
	if err := <-own.done; !registry.IsNotApplied(err) {
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

// enter reports whether the call goes in the next batch. No two there have one identity. A driver may learn its limit later.
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
	if now.Sub(j.stormed) >= calm || len(j.waiting) >= limit || now.Before(j.apart[in.Service]) {
		return false
	}
	if slices.ContainsFunc(j.waiting, func(other *joined) bool {
		return other.change.Instance.Service == in.Service && other.change.Instance.Endpoint() == in.Endpoint()
	}) {
		return false
	}
	if j.waiting = append(j.waiting, own); len(j.waiting) == 1 {
		j.since, j.timer = now, time.AfterFunc(gap, j.send)
	}
	// One service has at most half of the slots, and its calls hold them while they wait.
	if len(j.waiting) >= min(company, limit, j.slots()/2) {
		go j.carryOut(j.take()) // at once: the next call is the first of another batch
	} else {
		j.timer.Reset(j.waitsFor(own, now))
	}
	return true
}

// take returns the batch, and begins another one. The caller holds mu.
func (j *joiner) take() []*joined {
	batch := j.waiting
	j.waiting = nil
	j.timer.Stop()
	return batch
}

// waitsFor is how long the batch waits for the next call, once this one has come.
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

// carryOut makes one batch, in the time that is left to the caller with the least.
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
	undone := slices.ContainsFunc(errs, registry.IsNotApplied)
	for i, call := range batch {
		err := errors.New("the driver gave no outcome for a change in a batch")
		if i < len(errs) {
			err = errs[i]
		}
		if err != nil && (late != nil || undone && !registry.IsNotApplied(err)) {
			j.keepApart(call.change)
		}
		if err != nil && late != nil { // the call may still be carried out, although its own time may not be up
			err = fmt.Errorf("%w (the batch: %w)", err, late)
		}
		call.done <- err
	}
}

// outcomes makes a batch. Where the driver panics, no change goes with others for a while.
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

// keepApart has the calls of the change's service made by themselves for a while.
func (j *joiner) keepApart(change registry.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(j.apart, func(_ string, until time.Time) bool { return !now.Before(until) })
	j.apart[change.Instance.Service] = now.Add(apartFor)
}
