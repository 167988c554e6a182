package visit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// moment is what a visit goes by now. Each write on the pod makes the next one, and none is made while entries are brought to rest.
type moment struct {
	*Visitor

	facts *observe.Facts
	// input has the pod as this visit has patched it.
	input    lifecycle.Input
	decision lifecycle.Decision
	// targets are at the addresses where applications' entries were found. relocated is set once one was found at another.
	targets   []tracker.Target
	relocated atomic.Bool

	// tries makes several failing entries count as one try.
	tries sync.Once
	after time.Duration
}

func (m *moment) decide() { m.decision = Decide(m.facts, m.input) }

func (m *moment) pod() *lifecycle.Pod { return m.input.Pod }

// plan are the facts for package plan, with what is known now.
func (m *moment) plan() plan.Facts { return m.facts.Entries(m.input, m.targets) }

func (m *moment) event(why reason.Reason, note string) { m.Tell(m.pod(), why, note) }

// backOff is when to try again what failed: later with each visit that fails.
func (m *moment) backOff() time.Duration {
	m.tries.Do(func() { m.after = m.BackOff(m.pod().UID) })
	return m.after
}
