package registrytest

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

// The names of needs that tests of broken drivers are about.
const (
	Unreachable = hasUnreachable
	Restart     = hasRestart
	ShortLease  = hasShortLease
)

// CaseNames returns those of the suite.
func CaseNames() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

// Impatient waits no longer than d for anything, so that a driver that is broken by design costs little time.
func Impatient(h Harness, d time.Duration) Harness {
	h.impatient = &patience{list: d, probe: d, lease: d, restart: d}
	return h
}

// Outcome is how a case went.
type Outcome string

// The outcomes of a case.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Result is the outcome of one case.
type Result struct {
	Name    string
	Needs   []Capability
	Outcome Outcome
	// Messages are what the case reported, in order.
	Messages []string
}

// Check runs every case in a test that it does not fail, one after the other, and returns how each went. An error means that
// the harness itself is wrong.
func Check(t testing.TB, h Harness) ([]Result, error) {
	t.Helper()
	if err := h.check(); err != nil {
		return nil, err
	}
	var results []Result
	for _, c := range cases() {
		results = append(results, checkCase(t, c, h))
	}
	return results, nil
}

func checkCase(t testing.TB, c testCase, h Harness) Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, ctx: ctx, outcome: Passed}
	done := make(chan struct{})
	go func() { // of its own, since Fatalf and Skipf end the goroutine
		defer close(done)
		defer r.cleanUp()
		defer cancel()
		defer r.recoverPanic()
		c.runOn(r, h)
	}()
	<-done
	return Result{c.name, c.needs, r.outcome, r.messages}
}

// recorder is a test that keeps what it is given, by the methods that the suite and its harnesses use.
type recorder struct {
	testing.TB

	ctx context.Context

	mu       sync.Mutex
	outcome  Outcome
	messages []string
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Logf(format string, args ...any) { r.note("", format, args...) }

func (r *recorder) Errorf(format string, args ...any) { r.note(Failed, format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.note(Failed, format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.note(Skipped, format, args...)
	runtime.Goexit()
}

func (r *recorder) note(outcome Outcome, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
	if outcome != "" && r.outcome != Failed {
		r.outcome = outcome
	}
}

func (r *recorder) recoverPanic() {
	if p := recover(); p != nil {
		r.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// cleanUp runs the cleanups, the last first, those included that a cleanup adds.
func (r *recorder) cleanUp() {
	for {
		r.mu.Lock()
		last := len(r.cleanups) - 1
		if last < 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.mu.Unlock()
		f()
	}
}
