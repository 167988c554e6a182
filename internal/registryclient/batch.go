package registryclient

import (
	"context"
	"errors"
	"fmt"
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

// join makes the call in the next batch and waits for its outcome, or makes it by itself. The context has a deadline, and
// nothing else ends it; see [Options.bound].
func (j *joiner) join(ctx context.Context, change registry.Change) error {
	own := &joined{ctx: ctx, change: change, done: make(chan error, 1)}
	j.queue(own) //nolint:contextcheck // a lane is not the caller's: each call brings its own context
	deadline, _ := ctx.Deadline()
	impatient := time.NewTimer(time.Until(deadline) / patience)
	defer impatient.Stop()
	var err error
	select {
	case err = <-own.done:
	case <-impatient.C:
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

// next takes the calls that waited longest, as many as a batch may have, and no two with one identity.
func (j *joiner) next(service string) []*joined {
	j.mu.Lock()
	defer j.mu.Unlock()
	var batch, rest []*joined
	taken := map[identity]bool{}
	for _, call := range j.waiting[service] {
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

// carryOut makes one batch, in the time that is left to the caller with the least.
func (j *joiner) carryOut(batch []*joined) {
	if len(batch) == 1 {
		batch[0].done <- batch[0].change.Make(batch[0].ctx, j.single)
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
	errs := j.batcher.Batch(ctx, changes)
	late := ctx.Err()
	for i, call := range batch {
		err := errors.New("the driver gave no outcome for a change in a batch")
		if i < len(errs) {
			err = errs[i]
		}
		if err != nil && late != nil { // the call may still be carried out, although its own time may not be up
			err = fmt.Errorf("%w (the batch: %w)", err, late)
		}
		call.done <- err
	}
}

// identity is what tells entries apart; see [registry.Registry].
type identity struct{ service, endpoint string }

func identityOf(in registry.Instance) identity {
	return identity{service: in.Service, endpoint: in.Endpoint()}
}
