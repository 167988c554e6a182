package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// overrun bounds how much longer than planned a storm takes: faults take turns, and each waits until it meets something, and for servers
// that start again. stopsWithin is how long actions have then to stop.
const overrun, stopsWithin = 10 * time.Minute, time.Minute

// begun are the actions of a storm that have begun.
type begun struct {
	at    time.Time
	storm time.Duration
	play  func(context.Context, action)
	// failed: what else would come is left out.
	failed func() bool

	turns, all sync.WaitGroup
}

// begin begins actions at their times, later by so much, as long as it is to.
func (s *begun) begin(ctx, to context.Context, actions []action, later time.Duration) {
	for _, a := range actions {
		wait.Pause(to, time.Until(s.at.Add(later+a.at)))
		if to.Err() != nil || s.failed() {
			return
		}
		over := func() {}
		if a.kind.takesTurns() {
			s.turns.Add(1)
			over = s.turns.Done
		}
		s.all.Go(func() {
			defer over()
			s.play(ctx, a)
		})
	}
}

// goOn has users do the same again until each fault has had its turn: where nothing changes, it meets nothing.
func (s *begun) goOn(ctx context.Context, actions []action) {
	to, over := context.WithCancel(ctx)
	defer over()
	go func() {
		s.turns.Wait()
		over()
	}()
	work := slices.DeleteFunc(slices.Clone(actions), func(a action) bool { return !a.kind.isWork() })
	for later := s.storm; to.Err() == nil && len(work) > 0 && !s.failed(); later += s.storm {
		s.begin(ctx, to, work, later)
	}
	<-to.Done()
}

// end waits until all actions are over, and reports whether they are.
func (s *begun) end(ctx context.Context) bool {
	ended := make(chan struct{})
	go func() {
		s.all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return ctx.Err() == nil
	case <-ctx.Done():
	}
	select {
	case <-ended:
	case <-time.After(stopsWithin):
	}
	return false
}

// lastWhile plays a fault between managers and registry that lasts, with what begins and ends it. It begins when there are connections,
// and lasts until it has met something.
func (g *game) lastWhile(ctx context.Context, a action, open func() int, begin func(), end func() error) (done bool, err error) {
	g.lasting.Lock()
	defer g.lasting.Unlock()
	before := g.met(g.journal.Counts())[a.kind]
	// What is refused is not counted, only what was open: that grows no more.
	met := func() bool { return a.kind == netRefuse || g.met(g.journal.Counts())[a.kind]-before >= enoughMet }
	g.await(ctx, fmt.Sprintf("a leader, and %d connections for %q", enoughMet, a.kind), func() bool {
		return g.managers.leader() != nil && open() >= enoughMet
	})
	begin()
	wait.Pause(ctx, a.lasts)
	g.await(ctx, fmt.Sprintf("%d calls or connections that meet %q", enoughMet, a.kind), met)
	done = g.met(g.journal.Counts())[a.kind] > before
	err = end()
	wait.Pause(ctx, faultGap)
	return done, err
}

// await returns once it is so, or has not become so for long enough, which it says.
func (g *game) await(ctx context.Context, what string, so func() bool) {
	defer g.underway.begin("waiting for " + what)()
	for began := time.Now(); ctx.Err() == nil && !so(); wait.Pause(ctx, hitPoll) {
		if time.Since(began) >= hitWithin {
			g.out.printf("waited %s in vain for %s", hitWithin, what)
			return
		}
	}
}

// underway is what happens now, and how often. The zero value is nothing. It is safe for concurrent use.
type underway struct {
	mu  sync.Mutex
	all map[string]int
}

// begin adds to it until end is called.
func (u *underway) begin(what string) (end func()) {
	u.add(what, 1)
	return func() { u.add(what, -1) }
}

func (u *underway) add(what string, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[string]int{}
	}
	if u.all[what] += n; u.all[what] == 0 {
		delete(u.all, what)
	}
}

func (u *underway) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(u.all)), "; ")
}
