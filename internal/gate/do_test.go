package gate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDoWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 2)
		s.come("web/1")
		done := make(chan error, 1)
		called := false
		go func() {
			done <- s.gate.Do(t.Context(), s.caller("web/resync"), func() error { called = true; return errDown })
		}()
		synctest.Wait()
		if called {
			t.Fatal("a call is made although one of the service is under way, of a gate that lets one through")
		}
		s.leaves("web/1", nil)
		if err := <-done; !called || !errors.Is(err, errDown) {
			t.Errorf("the call was made: %t; Do returns %v, want the call's error", called, err)
		}
		s.expectFree()
	})
}

func TestDoGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 2)
		s.come("web/1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.gate.Do(ctx, s.caller("web/resync"), func() error { t.Error("the call is made"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do returns %v, want the end of its context", err)
		}
		s.leaves("web/1", nil)
		s.expectFree()
	})
}

func TestDoLeavesAGateThatOpenedItsBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 20)
		for range enough {
			for _, c := range []string{"web/1", "web/2", "web/3", "api/4", "api/5"} {
				_ = s.gate.Do(t.Context(), s.caller(c), func() error { return errDown })
				if s.gate.Status().Breaker != "closed" {
					break
				}
			}
		}
		if got := s.gate.Status(); got.Breaker != "open" || got.Queued != 0 {
			t.Errorf("got %+v, want an open breaker before which nobody waits", got)
		}
	})
}

func TestDoFreesTheSlotOfACallThatPanics(t *testing.T) {
	t.Parallel()
	s := newStreet(t, 2)
	func() {
		defer func() { _ = recover() }()
		_ = s.gate.Do(t.Context(), s.caller("web/resync"), func() error { panic("a driver's mistake") })
	}()
	s.expectFree()
}

func TestDoPassesNoGate(t *testing.T) {
	t.Parallel()
	var none *Gate
	if err := none.Do(t.Context(), Caller{}, func() error { return errDown }); !errors.Is(err, errDown) {
		t.Errorf("got %v, want the call's error", err)
	}
}

// expectFree expects that no slot is taken and nobody waits.
func (s *street) expectFree() {
	s.Helper()
	if got := s.gate.Status(); got.InUse != 0 || got.Queued != 0 {
		s.Errorf("%d slots are in use and %d wait, want none", got.InUse, got.Queued)
	}
}
