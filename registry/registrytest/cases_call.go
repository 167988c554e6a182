package registrytest

import (
	"context"
	"errors"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// callCases are about how calls behave, whatever they do.
func callCases() []testCase {
	return []testCase{
		{
			name: "ConcurrentCalls",
			why:  "a rollout makes a hundred calls at the same time; none may undo another",
			run:  concurrentCalls,
		},
		{
			name: "ConcurrentCallsForOneInstance",
			why:  "after a timeout the old call may still be under way when it is made again",
			run: func(w *world) {
				d := w.newProcess()
				w.atOnce(20, func(int) error { return w.callErr(opRegister, d, w.pod(1)) })
				w.expect(inService(w.pod(1)))
				w.atOnce(20, func(int) error { return w.callErr(opFailOver, d, w.pod(1)) })
				w.expect(outOfService(w.pod(1)))
				w.atOnce(20, func(int) error { return w.callErr(opDeregister, d, w.pod(1)) })
				w.expect()
			},
		},
		{
			name: "ConcurrentTakeover",
			why:  "the next pod can register at the address after the driver has checked the ownership tag and before it removes the entry",
			run:  concurrentTakeover,
		},
		{
			name: "CancelledContext",
			why:  "a worker that waits for a call after its caller has gone is missing elsewhere, and the shutdown hangs",
			run:  cancelledContext,
			apps: true,
		},
		{
			name:  "DeadlineIsKept",
			why:   "a registry that hangs would hold every worker, and a former leader's call would land after the next has taken over",
			needs: []Capability{hasStalled},
			run:   deadlineIsKept,
			apps:  true,
		},
		{
			name:  "CancelWhileWaiting",
			why:   "shutdown must not wait for a registry that hangs",
			needs: []Capability{hasStalled},
			run:   cancelWhileWaiting,
			apps:  true,
		},
		{
			name:  "LostAnswer",
			why:   "a call can be carried out late and put a pod back whose hook was released; the caller waits only if the error is a timeout",
			needs: []Capability{hasLosingAnswers},
			run:   lostAnswer,
		},
	}
}

// lostAnswer loses one after the other of the registry's answers during a call, until the call needs no more.
func lostAnswer(w *world) {
	const most = 50
	for n := range most {
		d, lose := w.h.LosingAnswers(w.TB, w.cluster)
		w.register(w.opened(d), w.pod(0))
		lost := lose(n + 1)
		err := w.callErr(opRegister, d, w.pod(n+1))
		var late interface{ Timeout() bool }
		switch {
		case !lost():
			return
		case err == nil || errors.As(err, &late) && late.Timeout() || !w.isInService(w.pod(n+1)):
		default:
			w.Fatalf("answer %d was lost, and the change was made: got error %v, want one whose Timeout() is true", n+1, err)
		}
	}
	w.Fatalf("the registry sends more than %d answers in one call", most)
}

func concurrentCalls(w *world) {
	const pods = 100
	drivers := []registry.Registry{w.newProcess(), w.newProcess()}
	driver := func(i int) registry.Registry { return drivers[i%len(drivers)] }
	w.atOnce(pods, func(i int) error { return w.callErr(opRegister, driver(i), w.pod(i)) })
	w.expect(allInService(w.pods(pods))...)

	changes := mixed(w.pods(pods))
	w.atOnce(pods, func(i int) error { return w.callErr(opOf(changes[i].State), driver(i), changes[i].Instance) })
	w.expect(afterwards(changes)...)
}

// concurrentTakeover has a dead pod's late call race with the registration of its heir: by another process, or by the same
// one if the registry has no conditional change.
func concurrentTakeover(w *world) {
	old := w.newProcess()
	next := old
	if !w.h.lacks(Conditional) {
		next = w.newProcess()
	}
	var want []registry.Entry
	for i := range races {
		dead := w.pod(i)
		w.register(old, dead)
		late := []operation{opDeregister, opFailOver}[i%2]
		w.race(i/2,
			func() error { return w.callErr(late, old, dead) },
			func() error { return w.callErr(opRegister, next, heir(dead)) },
		)
		want = append(want, inService(heir(dead)))
	}
	w.expect(want...)
}

// races is how many times two calls race.
const races = 48

// race makes two calls together, and shifts them against each other from round to round, since it is not known when a driver that
// checks first and then acts can be overtaken.
func (w *world) race(round int, early, late func() error) {
	w.Helper()
	const (
		shifts = 12
		step   = 200 * time.Microsecond
	)
	shift := time.Duration(round%shifts-shifts/4) * step // below zero: the early call is the later one
	w.atOnce(2, func(who int) error {
		if who == 0 {
			<-time.After(-shift)
			return early()
		}
		<-time.After(shift)
		return late()
	})
}

func cancelledContext(w *world) {
	d := w.newProcess()
	cancelled, cancel := context.WithCancel(w.Context())
	cancel()
	expired, cancelExpired := context.WithDeadline(w.Context(), time.Now().Add(-time.Second))
	defer cancelExpired()
	for _, op := range operations(d) {
		w.expectContextError(cancelled, op, d)
		w.expectContextError(expired, op, d)
	}
}

func deadlineIsKept(w *world) {
	d := w.opened(w.h.Stalled(w.TB))
	for _, op := range operations(d) {
		ctx, cancel := context.WithTimeout(w.Context(), 50*time.Millisecond)
		w.expectContextError(ctx, op, d)
		cancel()
	}
}

func cancelWhileWaiting(w *world) {
	d := w.opened(w.h.Stalled(w.TB))
	for _, op := range operations(d) {
		ctx, cancel := context.WithCancel(w.Context())
		timer := time.AfterFunc(50*time.Millisecond, cancel)
		w.expectContextError(ctx, op, d)
		timer.Stop()
		cancel()
	}
}

// expectContextError makes a call whose context ends soon or has ended, and expects it to return promptly with that error.
func (w *world) expectContextError(ctx context.Context, op operation, d registry.Registry) {
	w.Helper()
	_, err := within(prompt, w, func() (any, error) { return nil, w.invoke(ctx, op, d, w.pod(1)) })
	switch {
	case errors.Is(err, errBlocked):
		w.Fatalf("%s: has not returned %s after its context ended", op, prompt)
	case ctx.Err() == nil && err != nil && w.has[callsPods] && registry.CodeOf(err) != registry.CodeTerminal:
		// its requests each have a share of the time
	case ctx.Err() == nil:
		w.Fatalf("%s: returned before its context ended, with error %v", op, err)
	case !errors.Is(err, ctx.Err()):
		w.Fatalf("%s: got error %v, want one that wraps %q", op, err, ctx.Err())
	case registry.CodeOf(err) == registry.CodeTerminal:
		w.Fatalf("%s: its context ended: got a terminal error, want a retryable one: %v", op, err)
	}
}
