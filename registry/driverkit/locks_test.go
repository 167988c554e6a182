package driverkit

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	var l Locks
	release, err := l.Acquire(t.Context(), "b", "a")
	expect.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Acquire(ended, "c", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that is held, with a context that has ended: got error %v", err)
	}
	other, err := l.Acquire(ended, "c")
	if err != nil {
		t.Errorf("a lock that was given back: got error %v", err)
	} else {
		other()
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		if release, err := l.Acquire(t.Context(), "a", "b"); err == nil {
			release()
		}
	}()
	release()
	<-waited
	expect.Equal(t, 0, len(l.held), "locks are kept that no caller holds")
}

func TestLocksExclude(t *testing.T) {
	t.Parallel()
	var l Locks
	counters := map[string]*int{"a": new(int), "b": new(int), "c": new(int)}
	var all sync.WaitGroup
	for _, paths := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a"}, {"a"}} {
		all.Go(func() {
			for range 200 {
				release, err := l.Acquire(t.Context(), paths...)
				if err != nil {
					t.Error(err)
					return
				}
				for _, p := range paths {
					*counters[p]++ // the race detector looks, too
				}
				release()
			}
		})
	}
	all.Wait()
	if got := []int{*counters["a"], *counters["b"], *counters["c"]}; !cmp.Equal(got, []int{800, 600, 400}) {
		t.Errorf("counted %v, want [800 600 400]", got)
	}
}
