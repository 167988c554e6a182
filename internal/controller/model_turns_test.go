package controller

import (
	"slices"
	"sync"
	"testing/synctest"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// modelCallsAtOnce is more than a visit makes: which of them would have to wait for a slot is up to the scheduler.
const modelCallsAtOnce = 16

// modelTurns has the calls of a visit carried out one after the other, and the same way in each replay. The reconciler makes those of
// several registries at once, and the scheduler would choose.
type modelTurns struct {
	sync.Mutex
	waiting []modelTurn
}

type modelTurn struct {
	of    lifecycle.Key
	comes chan struct{}
}

// await returns once it is the call's turn.
func (t *modelTurns) await(of lifecycle.Key) {
	mine := modelTurn{of, make(chan struct{})}
	t.Lock()
	t.waiting = append(t.waiting, mine)
	t.Unlock()
	<-mine.comes
}

// inTurns takes a visit to its end: whenever each of its calls waits or is over, one of those that wait has its turn.
func (m *model) inTurns(visit func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		visit()
	}()
	for {
		synctest.Wait()
		select {
		case <-over:
			return
		default:
			m.nextTurn()
		}
	}
}

func (m *model) nextTurn() {
	t := &m.turns
	t.Lock()
	defer t.Unlock()
	slices.SortFunc(t.waiting, func(a, b modelTurn) int { return a.of.Compare(b.of) })
	next := 0
	if len(t.waiting) > 1 {
		next = m.rng.IntN(len(t.waiting))
	}
	close(t.waiting[next].comes)
	t.waiting = slices.Delete(t.waiting, next, next+1)
}
