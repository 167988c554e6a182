package driverkit

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Locks keep calls of one process for the same key apart, for a registry without conditional changes: what a call has read of an
// entry must still be true when it changes the entry. The zero value is ready to use.
type Locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{} // holds a value while a call has the lock
	users int           // who has it or waits for it
}

// Acquire returns when the caller has the locks of all keys, of which none may be given twice, or with an error if the context ends
// first. The caller calls release once; it can do so after its own call has ended, while its request can still be carried out.
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
	case k.turn <- struct{}{}: // even if the context has ended: the call itself then returns that
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

// leave gives the lock back.
func (l *Locks) leave(key string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[key]
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
	return k.turn
}
