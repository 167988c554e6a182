package driverkit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// asker holds each question until it is told to answer. An answer is the question's number.
type asker struct {
	shared driverkit.Shared[int]
	sent   chan int   // the number of each question that was sent
	answer chan error // ends one question
	mu     sync.Mutex
	count  int
}

func newAsker() *asker { return &asker{sent: make(chan int, 10), answer: make(chan error)} }

func (a *asker) question(ctx context.Context) (int, error) {
	a.mu.Lock()
	a.count++
	number := a.count
	a.mu.Unlock()
	a.sent <- number
	select {
	case err := <-a.answer:
		return number, err
	case <-ctx.Done():
		return number, ctx.Err()
	}
}

// begin starts calls that have begun to wait when it returns, and returns their results.
func (a *asker) begin(ctx context.Context, calls int) <-chan result {
	results := make(chan result, calls)
	var begun sync.WaitGroup
	for range calls {
		begun.Add(1)
		go func() {
			number, err := a.shared.Ask(waitedFor{ctx, sync.OnceFunc(begun.Done)}, "web", a.question)
			results <- result{number, err}
		}()
	}
	begun.Wait()
	return results
}

type result struct {
	number int
	err    error
}

// waitedFor tells that a call waits: that is when Ask asks for Done, and after it has joined a question.
type waitedFor struct {
	context.Context

	begun func()
}

func (w waitedFor) Done() <-chan struct{} {
	w.begun()
	return w.Context.Done()
}

func expectAll(t *testing.T, results <-chan result, want result) {
	t.Helper()
	for range cap(results) {
		if got := <-results; got.number != want.number || !errors.Is(got.err, want.err) {
			t.Errorf("got answer %d and error %v, want %d and %v", got.number, got.err, want.number, want.err)
		}
	}
}

func TestShared_OneQuestionForAllThatBeganBeforeIt(t *testing.T) {
	t.Parallel()
	a := newAsker()
	first := a.begin(t.Context(), 1)
	<-a.sent
	rest := a.begin(t.Context(), 83)
	a.answer <- nil
	expectAll(t, first, result{number: 1})
	<-a.sent
	a.answer <- nil
	expectAll(t, rest, result{number: 2})
	if a.count != 2 {
		t.Errorf("84 calls asked %d questions, want 2: one for the first, and one for all that came while it was under way", a.count)
	}
}

func TestShared_AnErrorIsThatOfItsAskersOnly(t *testing.T) {
	t.Parallel()
	a, failed := newAsker(), errors.New("no route")
	first := a.begin(t.Context(), 1)
	<-a.sent
	later := a.begin(t.Context(), 3)
	a.answer <- failed
	expectAll(t, first, result{number: 1, err: failed})
	<-a.sent
	a.answer <- nil
	expectAll(t, later, result{number: 2})
}

func TestShared_AnAskerThatLeavesDoesNotEndTheQuestion(t *testing.T) {
	t.Parallel()
	a := newAsker()
	running := a.begin(t.Context(), 1)
	<-a.sent
	leaving, leave := context.WithCancel(t.Context())
	gone, stays := a.begin(leaving, 1), a.begin(t.Context(), 1)
	leave()
	expectAll(t, gone, result{err: context.Canceled})
	a.answer <- nil
	expectAll(t, running, result{number: 1})
	<-a.sent
	a.answer <- nil
	expectAll(t, stays, result{number: 2})
}

func TestShared_AQuestionThatNobodyWaitsForEnds(t *testing.T) {
	t.Parallel()
	a := newAsker()
	ctx, leave := context.WithCancel(t.Context())
	only := a.begin(ctx, 1)
	<-a.sent
	leave()
	expectAll(t, only, result{err: context.Canceled})
	next := a.begin(t.Context(), 1) // it waits for the end of the first, which is not answered
	<-a.sent
	a.answer <- nil
	expectAll(t, next, result{number: 2})
}

// TestShared_AQuestionWithoutAnAnswerHoldsUpNobody has one whose answer got lost.
func TestShared_AQuestionWithoutAnAnswerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	a := newAsker()
	lost := a.begin(t.Context(), 1)
	<-a.sent
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	next := make(chan result, 1)
	go func() {
		number, err := a.shared.Ask(ctx, "web", func(context.Context) (int, error) { return 7, nil })
		next <- result{number, err}
	}()
	expectAll(t, next, result{number: 7})
	a.answer <- nil
	expectAll(t, lost, result{number: 1})
}

func TestShared_KeysAreApart(t *testing.T) {
	t.Parallel()
	a := newAsker()
	web := a.begin(t.Context(), 1)
	<-a.sent
	if got, err := a.shared.Ask(t.Context(), "shop", func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("got answer %d and error %v, want 7: a question about another service holds it up", got, err)
	}
	a.answer <- nil
	expectAll(t, web, result{number: 1})
}

func TestShared_APanicIsAnError(t *testing.T) {
	t.Parallel()
	var shared driverkit.Shared[int]
	_, err := shared.Ask(t.Context(), "web", func(context.Context) (int, error) { panic("no map") })
	if err == nil || !strings.Contains(err.Error(), "no map") {
		t.Errorf("got error %v, want that of the panic", err)
	}
}

// TestShared_ADeadlineEndsTheCall: not a moment before, or a hung registry would look like one that has answered.
func TestShared_ADeadlineEndsTheCall(t *testing.T) {
	t.Parallel()
	var calls sync.WaitGroup
	for range 200 {
		calls.Go(func() {
			var shared driverkit.Shared[int]
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := shared.Ask(ctx, "web", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			})
			if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
				t.Errorf("got error %v while the call's own context has %v, want %v of both", err, ctx.Err(), context.DeadlineExceeded)
			}
		})
	}
	calls.Wait()
}
