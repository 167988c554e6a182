package zookeeper

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// locks lets one call at a time work on an entry. The zero value is ready.
//
// A call that was given up keeps its locks until ZooKeeper has answered it or its connection is gone: so whatever it may
// still do lands before any later call of this process for the same entry looks there.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	token chan struct{} // holds one while the lock is free
	users int
}

// acquire returns when all paths are the caller's. Give each path once.
func (l *locks) acquire(ctx context.Context, paths ...string) (release func(), err error) {
	sorted := slices.Sorted(slices.Values(paths)) // so that two calls never wait for each other
	for i, path := range sorted {
		if err := l.acquireOne(ctx, path); err != nil {
			l.release(sorted[:i])
			return nil, err
		}
	}
	return func() { l.release(sorted) }, nil
}

func (l *locks) acquireOne(ctx context.Context, path string) error {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[path]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		k.token <- struct{}{}
		l.held[path] = k
	}
	k.users++
	l.mu.Unlock()
	select {
	case <-k.token:
		return nil
	default:
	}
	select {
	case <-k.token:
		return nil
	case <-ctx.Done():
		l.leave(path)
		return fmt.Errorf("waiting for an earlier call for the same entry: %w", ctx.Err())
	}
}

func (l *locks) release(paths []string) {
	for _, path := range paths {
		l.mu.Lock()
		token := l.held[path].token
		l.mu.Unlock()
		token <- struct{}{}
		l.leave(path)
	}
}

func (l *locks) leave(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[path]
	k.users--
	if k.users == 0 {
		delete(l.held, path)
	}
}
