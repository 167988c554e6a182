package driverkit

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Shared makes one request of many calls that ask the same question at the same moment, such as whether others have entries in a service.
// A call shares only an answer to a question that was sent after the call began, so the answer has all that was acknowledged before it.
// The zero value is ready to use, and is safe for concurrent use.
//
// golang.org/x/sync/singleflight differs in just that: a call that comes while a question is under way gets its answer, in which what was
// acknowledged meanwhile can be missing. It also ends the question of all with the context of the first.
type Shared[T any] struct {
	mu   sync.Mutex
	keys map[string]*questions[T]
}

// questions are those of one key.
type questions[T any] struct {
	// next is not sent yet, and last is the one that was sent before it. Each can be nil.
	next, last *question[T]
}

type question[T any] struct {
	done   chan struct{} // closed when answer and err are there
	answer T
	err    error

	// Guarded by the lock of Shared. If forever, one of the askers has no deadline.
	askers   int
	forever  bool
	deadline time.Time
	cancel   context.CancelFunc // nil before it is sent
}

// Ask returns the answer to the key's question. Calls with the same key must ask the same question. If one is under way, the next is
// sent when that has been answered, or when half of the time of the call that asks first has passed: one answer that gets lost does
// not fail the calls after it. A question ends with the last of the contexts that ask it.
func (s *Shared[T]) Ask(ctx context.Context, key string, ask func(context.Context) (T, error)) (answer T, err error) {
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	q := s.join(ctx, key, ask)
	select {
	case <-q.done:
		if q.err != nil && q.over() { // a moment before the caller's own context, which has no later end
			<-ctx.Done()
			return answer, ctx.Err()
		}
		return q.answer, q.err
	case <-ctx.Done():
		s.leave(q)
		return answer, ctx.Err()
	}
}

// over reports whether the time of all who asked has passed. Call it once the question is answered.
func (q *question[T]) over() bool { return !q.forever && !time.Now().Before(q.deadline) }

// join returns the question that is sent next.
func (s *Shared[T]) join(ctx context.Context, key string, ask func(context.Context) (T, error)) *question[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]*questions[T]{}
	}
	of := s.keys[key]
	if of == nil {
		of = &questions[T]{}
		s.keys[key] = of
	}
	q := of.next
	if q == nil {
		q = &question[T]{done: make(chan struct{})}
		of.next = q
		go s.send(ctx, key, q, of.last, ask)
	}
	q.askers++
	deadline, bounded := ctx.Deadline()
	q.forever = q.forever || !bounded
	if deadline.After(q.deadline) {
		q.deadline = deadline
	}
	return q
}

func (s *Shared[T]) leave(q *question[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.askers--; q.askers == 0 && q.cancel != nil {
		q.cancel()
	}
}

func (s *Shared[T]) send(ctx context.Context, key string, q, before *question[T], ask func(context.Context) (T, error)) {
	if before != nil {
		before.await(ctx)
	}
	asking, cancel := s.begin(ctx, key, q)
	defer cancel()
	defer s.end(key, q)
	defer close(q.done)
	defer func() {
		if p := recover(); p != nil { // as in a call's own goroutine, which its caller recovers
			q.err = fmt.Errorf("the driver panicked: %v", p)
		}
	}()
	if q.err = asking.Err(); q.err == nil {
		q.answer, q.err = ask(asking)
	}
}

// await returns when the question has been answered, or half of the context's time has passed.
func (q *question[T]) await(ctx context.Context) {
	var half <-chan time.Time
	if deadline, bounded := ctx.Deadline(); bounded {
		timer := time.NewTimer(time.Until(deadline) / 2) //nolint:mnd // the other half is for the next question itself
		defer timer.Stop()
		half = timer.C
	}
	select {
	case <-q.done:
	case <-half:
	}
}

// begin closes the question to later calls.
func (s *Shared[T]) begin(ctx context.Context, key string, q *question[T]) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.keys[key]
	of.next, of.last = nil, q
	asking := context.WithoutCancel(ctx)
	if q.forever {
		asking, q.cancel = context.WithCancel(asking)
	} else {
		asking, q.cancel = context.WithDeadline(asking, q.deadline)
	}
	if q.askers == 0 { // all have gone while it waited
		q.cancel()
	}
	return asking, q.cancel
}

func (s *Shared[T]) end(key string, q *question[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.keys[key]; of != nil && of.last == q {
		if of.last = nil; of.next == nil {
			delete(s.keys, key)
		}
	}
}
