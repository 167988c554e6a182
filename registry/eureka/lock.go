package eureka

import (
	"context"
	"sync"
)

// locks keep the calls for one identity apart: what one has read of an entry must still hold when it changes that. The
// zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{} // holds a value while a call has the lock
	users int           // who has it or waits for it
}

// hold waits for the lock of a key, no longer than the context.
func (l *locks) hold(ctx context.Context, key string) (release func(), err error) {
	k := l.join(key)
	select {
	case k.turn <- struct{}{}:
		return func() {
			<-k.turn
			l.leave(key)
		}, nil
	case <-ctx.Done():
		l.leave(key)
		return nil, ctx.Err()
	}
}

func (l *locks) join(key string) *lock {
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

func (l *locks) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key].users--; l.held[key].users == 0 {
		delete(l.held, key)
	}
}
