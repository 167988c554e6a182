package registryclient

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// lanes is how many batches of one service may be under way at once.
	lanes = 4
	// patience is the part of a call's time that it waits for a lane before it is made by itself: so a slow registry
	// gets no fewer calls than it would without batches, and no batch has a call that is nearly out of time.
	patience = 4
)

// joiner joins calls. A call that finds a free lane is made at once; calls that find none wait, and go together in the
// next batch. So a single call never waits for company, and a storm makes few calls. Each service has lanes and batches of
// its own: one whose calls hang holds up no other, and takes none with it when its time is up.
type joiner struct {
	single  registry.Registry
	batcher registry.Batcher
	limit   int

	mu      sync.Mutex
	waiting map[string][]*joined
	busy    map[string]int
}

// joined is one call that waits for its batch.
type joined struct {
	ctx    context.Context //nolint:containedctx // the caller's, who waits for done
	change registry.Change
	done   chan error
}

func newJoiner(single registry.Registry, batcher registry.Batcher) *joiner {
	return &joiner{
		single: single, batcher: batcher, limit: batcher.BatchLimit(), waiting: map[string][]*joined{}, busy: map[string]int{},
	}
}

// join makes the call in the next batch and waits for its outcome, or makes it by itself.
func (j *joiner) join(ctx context.Context, change registry.Change) error {
	own := &joined{ctx: ctx, change: change, done: make(chan error, 1)}
	j.queue(own) //nolint:contextcheck // a lane is not the caller's: each call brings its own context
	impatient := make(<-chan time.Time)
	if deadline, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(deadline) / patience)
		defer timer.Stop()
		impatient = timer.C
	}
	var err error
	select {
	case err = <-own.done:
	case <-ctx.Done():
		if j.leave(own) {
			return ctx.Err()
		}
		err = <-own.done // its batch ends with the context
	case <-impatient:
		if j.leave(own) {
			return change.Make(ctx, j.single)
		}
		err = <-own.done
	}
	if registry.IsNotApplied(err) {
		return change.Make(ctx, j.single)
	}
	return err
}

func (j *joiner) queue(own *joined) {
	j.mu.Lock()
	defer j.mu.Unlock()
	service := own.change.Instance.Service
	j.waiting[service] = append(j.waiting[service], own)
	if j.busy[service] < lanes {
		j.busy[service]++
		go j.work(service)
	}
}

// leave reports whether the call was still waiting, and takes it away then.
func (j *joiner) leave(own *joined) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	service := own.change.Instance.Service
	i := slices.Index(j.waiting[service], own)
	if i < 0 {
		return false
	}
	j.waiting[service] = slices.Delete(j.waiting[service], i, i+1)
	return true
}

// work is one lane of a service: it makes batches until no call waits.
func (j *joiner) work(service string) {
	for {
		batch := j.next(service)
		if len(batch) == 0 {
			return
		}
		j.carryOut(batch)
	}
}

// next takes those who waited longest, as many as a batch may have, and no two with one identity. It takes none who has
// gone, since that would end the batch at once for all.
func (j *joiner) next(service string) []*joined {
	j.mu.Lock()
	defer j.mu.Unlock()
	var batch, rest []*joined
	taken := map[identity]bool{}
	for _, call := range j.waiting[service] {
		if err := call.ctx.Err(); err != nil {
			call.done <- err
			continue
		}
		id := identityOf(call.change.Instance)
		if len(batch) == j.limit || taken[id] {
			rest = append(rest, call)
		} else {
			batch = append(batch, call)
		}
		taken[id] = true
	}
	j.waiting[service] = rest
	if len(batch) == 0 {
		j.retire(service)
	}
	return batch
}

// retire ends one lane, in which no call waits, and keeps nothing of a service without any.
func (j *joiner) retire(service string) {
	if j.busy[service]--; j.busy[service] == 0 {
		delete(j.busy, service)
		delete(j.waiting, service)
	}
}

// carryOut makes one batch. It ends as soon as the context of one of its callers does, so that nothing is under way for
// one who has gone.
func (j *joiner) carryOut(batch []*joined) {
	if len(batch) == 1 {
		batch[0].done <- batch[0].change.Make(batch[0].ctx, j.single)
		return
	}
	ctx, cancel := together(batch)
	defer cancel()
	changes := make([]registry.Change, 0, len(batch))
	for _, call := range batch {
		changes = append(changes, call.change)
	}
	errs := j.batcher.Batch(ctx, changes)
	cut := ctx.Err() != nil
	for i, call := range batch {
		call.done <- outcome(call, errs, i, cut)
	}
}

// outcome is that of one call in a batch, which may have been cut off because another one's time was up.
func outcome(call *joined, errs []error, i int, cut bool) error {
	err := errors.New("the driver gave no outcome for a change in a batch")
	if i < len(errs) {
		err = errs[i]
	}
	if err == nil || !cut {
		return err
	}
	return &cutOffError{err: err, cause: call.ctx.Err()}
}

// cutOffError is of a call that may still be carried out, which is what a time-out means.
type cutOffError struct{ err, cause error }

func (e *cutOffError) Error() string { return e.err.Error() }
func (e *cutOffError) Timeout() bool { return true }
func (e *cutOffError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.err}
	}
	return []error{e.err, e.cause}
}

// together returns a context that ends as soon as one of theirs does.
func together(batch []*joined) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	stops := make([]func() bool, 0, len(batch))
	for _, call := range batch {
		stops = append(stops, context.AfterFunc(call.ctx, cancel))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// identity is what tells entries apart; see [registry.Registry].
type identity struct{ service, endpoint string }

func identityOf(in registry.Instance) identity {
	return identity{service: in.Service, endpoint: in.Endpoint()}
}
