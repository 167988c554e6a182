package process

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestLockLetsOneIn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, func() { t.Error("the first holder had to wait") })
	expect.NoError(t, err)
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a second holder gets %v, want that it is locked", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*lockPoll)
	defer cancel()
	if _, err := Lock(ctx, path, func() {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who waits too long gets %v, want its own deadline", err)
	}

	waiting, locked := make(chan struct{}), make(chan error, 1)
	go func() {
		release, err := Lock(t.Context(), path, func() { close(waiting) })
		if err == nil {
			release()
		}
		locked <- err
	}()
	<-waiting
	unlock()
	select {
	case err := <-locked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("who waited does not get the lock after it was released")
	}
}
