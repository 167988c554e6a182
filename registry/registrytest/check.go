package registrytest

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

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
	Case    Case
	Outcome Outcome
	// Messages are what the case reported, in order.
	Messages []string
}

// Check runs every case with no test around it, one after the other, and returns how each went. It is for proving that
// the suite catches a broken driver, and for tools. An error means that the harness itself is wrong.
func Check(ctx context.Context, h Harness) ([]Result, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	var results []Result
	for _, c := range Cases() {
		results = append(results, checkCase(ctx, c, h))
	}
	return results, nil
}

func checkCase(ctx context.Context, c Case, h Harness) Result {
	ctx, cancel := context.WithCancel(ctx)
	r := &recorder{ctx: ctx, outcome: Passed}
	done := make(chan struct{})
	go func() { // of its own, since Fatalf and Skipf end the goroutine
		defer close(done)
		defer r.cleanUp()
		defer cancel()
		defer r.recoverPanic()
		c.Run(r, h)
	}()
	<-done
	return Result{Case: c, Outcome: r.outcome, Messages: r.messages}
}

// recorder is a T that keeps what it is given.
type recorder struct {
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
