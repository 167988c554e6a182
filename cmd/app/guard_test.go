package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/internal/calls"
)

const guardTimeout = 5 * time.Second

// fakeTerm says what a test wants, and remembers what it was told.
type fakeTerm struct {
	refused error

	mu    sync.Mutex
	asked time.Duration
	lands time.Time
}

func (f *fakeTerm) permit(takes time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = takes
	return f.refused
}

func (f *fakeTerm) mayLand(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lands = until
}

func TestACallThatWasBegunIsFinishedWhenTheManagerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newGuardScenario(t)
		call := s.Begin(calls.Register, 2*time.Second)
		s.stop()
		s.Expect(<-call, nil, 2*time.Second)
		if !s.term.lands.IsZero() {
			t.Errorf("a call that was answered may land until %s", s.term.lands)
		}
	})
}

func TestAStopBoundsACallByItsOwnTime(t *testing.T) {
	t.Parallel()
	for operation, want := range map[string]time.Duration{
		calls.Register: guardTimeout, calls.FailOver: guardTimeout, calls.Deregister: guardTimeout, calls.Heartbeat: guardTimeout,
		// Nobody needs the answer, and nothing lands.
		calls.List: 0, calls.Get: 0, calls.Probe: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newGuardScenario(t)
			call := s.Begin(operation, time.Hour)
			s.stop()
			err := <-call
			if took := time.Since(s.began); err == nil || took != want {
				t.Errorf("%s ended with %v after %s, want an error after %s", operation, err, took, want)
			}
		})
	}
}

func TestTheCallersTimeIsTheCallsWhereItIsShorter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newGuardScenario(t)
		var cancel context.CancelFunc
		s.ctx, cancel = context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		s.Expect(<-s.Begin(calls.Register, time.Hour), context.DeadlineExceeded, time.Second)
	})
}

func TestNoCallIsBegunOnceTheManagerStops(t *testing.T) {
	t.Parallel()
	s := newGuardScenario(t)
	s.stop()
	err := s.guard.around(s.ctx, calls.Deregister, func(context.Context) error {
		t.Error("it was made")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestWhatTimedOutMayLandForAsLongAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   time.Duration
	}{
		"the network's": {"a connection that timed out may have brought the request", &net504{}, 2 * guardTimeout},
		"refused":       {"an answer is an outcome", errors.New("refused"), 0},
		"acknowledged":  {"so is this", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newGuardScenario(t)
				if err := s.guard.around(s.ctx, calls.FailOver, func(context.Context) error { return tc.err }); !errors.Is(err, tc.err) {
					t.Errorf("got %v, want %v", err, tc.err)
				}
				if got := max(0, s.term.lands.Sub(s.began)); got != tc.want {
					t.Errorf("%s: it may land for %s, want %s", tc.reason, got, tc.want)
				}
			})
		})
	}
}

func TestTheLeaseIsKeptWhileACallMayLand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseScenario()
		s.lease.now, s.held = readClocks, s.record("us")
		began := time.Now()
		s.lease.mayLand(began.Add(4 * time.Second))
		s.lease.mayLand(began.Add(2 * time.Second))
		a := &app{lease: s.lease, logger: quiet()}
		must(t, a.resign(t.Context()))
		if kept := time.Since(began); kept != 4*time.Second || s.held.HolderIdentity != "" {
			t.Errorf("the lease is %+v after %s, want it given back after the later of the calls", s.held, kept)
		}
		must(t, a.resign(t.Context()))
		if kept := time.Since(began); kept != 4*time.Second {
			t.Errorf("it was kept for %s although nothing may land any more", kept)
		}
	})
}

func TestWritesToTheAPIServerNeedTheLease(t *testing.T) {
	t.Parallel()
	for method, reads := range map[string]bool{
		http.MethodGet: true, http.MethodHead: true,
		http.MethodPost: false, http.MethodPut: false, http.MethodPatch: false, http.MethodDelete: false,
	} {
		for _, refused := range []error{nil, errDeposed} {
			sent := 0
			w := &writes{permit: func() error { return refused }, next: roundTripper(func(*http.Request) (*http.Response, error) {
				sent++
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}
			body := &closed{Reader: strings.NewReader("{}")}
			request, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/api", body)
			must(t, err)
			response, err := w.RoundTrip(request)
			if err == nil {
				must(t, response.Body.Close())
			}
			passes := reads || refused == nil
			if (err == nil) != passes || sent == 1 != passes {
				t.Errorf("%s, where permit says %v: got %v and %d requests", method, refused, err, sent)
			}
			if !passes && !body.closed {
				t.Errorf("%s: the body of a refused request was left open", method)
			}
		}
	}
}

// guardScenario is a guard, a caller who can be stopped, and the time when it began.
type guardScenario struct {
	*testing.T

	guard *guard
	term  *fakeTerm
	ctx   context.Context
	stop  context.CancelFunc
	began time.Time
}

func newGuardScenario(t *testing.T) *guardScenario {
	t.Helper()
	term := &fakeTerm{}
	s := &guardScenario{T: t, guard: &guard{term: term, timeout: guardTimeout}, term: term, began: time.Now()}
	s.ctx, s.stop = context.WithCancel(t.Context())
	return s
}

// Begin makes a call that the registry answers after so long, and returns when it is under way.
func (s *guardScenario) Begin(operation string, answers time.Duration) <-chan error {
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.guard.around(s.ctx, operation, func(ctx context.Context) error {
			close(begun)
			select {
			case <-time.After(answers):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	<-begun
	return done
}

func (s *guardScenario) Expect(got, want error, after time.Duration) {
	s.Helper()
	if took := time.Since(s.began); !errors.Is(got, want) || took != after {
		s.Errorf("it ended with %v after %s, want %v after %s", got, took, want, after)
	}
}

// net504 is a time-out that is not the context's.
type net504 struct{}

func (*net504) Error() string { return "gateway timeout" }
func (*net504) Timeout() bool { return true }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closed notes that it was closed.
type closed struct {
	*strings.Reader

	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}
