package eureka

import (
	"context"
	"hash/maphash"
)

// stripes is how many locks there are: several times the controller's workers, so that two identities rarely meet.
const stripes = 1024

// locks keep the calls for one identity apart: what one has read of an entry must still hold when it changes that.
type locks struct {
	seed maphash.Seed
	each [stripes]chan struct{}
}

func newLocks() *locks {
	l := &locks{seed: maphash.MakeSeed()}
	for i := range l.each {
		l.each[i] = make(chan struct{}, 1)
	}
	return l
}

// hold waits for the lock of a key, no longer than the context.
func (l *locks) hold(ctx context.Context, key string) (release func(), err error) {
	lock := l.each[maphash.String(l.seed, key)%stripes]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
