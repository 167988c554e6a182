package driverkit

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Locks keep the calls of one process for the same key apart, where a registry can't make a change on a condition: what a
// call has read of an entry must still hold when it changes that. The zero value is ready.
type Locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{} // holds a value while a call has the lock
	users int           // who has it or waits for it
}

// Acquire returns when all keys are the caller's, no key given twice, or an error when the context ends first. The caller
// calls release once; it may do so after its own call has ended, while what it sent can still be carried out.
func (l *Locks) Acquire(ctx context.Context, keys ...string) (release func(), err error) {
	sorted := slices.Sorted(slices.Values(keys)) // so that two calls never wait for each other
	for i, key := range sorted {
		if err := l.acquireOne(ctx, key); err != nil {
			l.release(sorted[:i])
			return nil, fmt.Errorf("waiting for an earlier call for the same entry: %w", err)
		}
	}
	return func() { l.release(sorted) }, nil
}

func (l *Locks) acquireOne(ctx context.Context, key string) error {
	k := l.join(key)
	select {
	case k.turn <- struct{}{}: // also where the context has ended: the call then says so itself
		return nil
	default:
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.leave(key)
		return ctx.Err()
	}
}

func (l *Locks) join(key string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[key]
	if k == nil {
		k = &lock{turn: make(chan struct{}, 1)}
		l.held[key] = k
	}
	k.users++
	return k
}

func (l *Locks) release(keys []string) {
	for _, key := range keys {
		<-l.leave(key)
	}
}

// leave returns the lock's turn, which one who has the lock takes back.
func (l *Locks) leave(key string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[key]
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
	return k.turn
}
