package gate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Caller is one who wants to make a call.
type Caller struct {
	// ID tells callers apart. One caller has at most one place in line for each service.
	ID string
	// Service is what the call is about.
	Service string
	// Urgent callers go before the others of their service, and have slots that the others can't take.
	Urgent bool
	// Wake is called once when it is the turn of a caller who was refused. It must neither block nor use the gate. The
	// caller is to come again; until the end of that visit its slot is kept free.
	Wake func()
}

// Refusal is why a call may not be made now.
type Refusal struct {
	// Outage is nil where the breaker is closed and only the slots are taken.
	Outage *Outage
}

// Outage is the time in which the breaker lets no calls through but the probes.
type Outage struct {
	// Since is when the breaker opened.
	Since time.Time
	// Err is the last failure.
	Err error
	// Probe is when the next call is let through; it is past where one may be under way.
	Probe time.Time
}

// Gate lets a bounded number of calls through to one registry. It is safe for concurrent use. A nil Gate lets every call
// through.
type Gate struct {
	mu      sync.Mutex
	slots   slots
	breaker *breaker
	// probing: the one call of a half-open breaker is under way, or somebody was woken to make it.
	probing bool
	// calls is how many callers were woken.
	calls uint64
	// waiters are those in line and those who were woken, by ID and service.
	waiters map[string]map[string]*waiter
	urgent  line
	others  line
}

// waiter is a caller who was refused.
type waiter struct {
	Caller
	// asked: the caller has asked since its visit began.
	asked bool
	// called: the caller was woken, and a slot is kept for it. It is in no line then.
	called bool
	// number tells who was called before whom.
	number uint64
}

// New returns a gate with so many slots, 1 or more. One service gets at most half of them, and callers who are not urgent
// leave a quarter to those who are.
func New(maxInFlight int) *Gate {
	g := &Gate{
		slots: newSlots(maxInFlight), waiters: map[string]map[string]*waiter{}, urgent: newLine(), others: newLine(),
	}
	g.breaker = newBreaker(g.breakerMoved)
	return g
}

// SetSlots changes how many slots there are, as [New] says. Calls that are under way go on, also where they are more.
func (g *Gate) SetSlots(maxInFlight int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slots.resize(maxInFlight)
	g.advance()
}

// Enter returns leave where the caller may make a call now. It must call leave exactly once, with the call's error.
// Otherwise the caller has a place in line, its old one where it has one already, and is told why. Enter never waits.
func (g *Gate) Enter(c Caller) (leave func(err error), refused *Refusal) {
	if g == nil {
		return func(error) {}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breaker.sees(c.Service)
	w := g.waiters[c.ID][c.Service]
	called := w != nil && w.called
	if !called && !g.lets(c) {
		g.park(c)
		return nil, g.refusal()
	}
	done, err := g.breaker.Allow()
	if err != nil { // not while one is called or let through, but a call is never made against the breaker
		g.park(c)
		return nil, g.refusal()
	}
	if called {
		g.slots.free(w.Caller)
	}
	g.forget(w)
	g.slots.take(c)
	probe := g.breaker.State() == gobreaker.StateHalfOpen
	g.probing = g.probing || probe
	return func(err error) { g.leave(c, probe, done, err) }, nil
}

// EndVisit is called when a caller has asked for all that it wants for now. A place in line or a turn that it had, and did
// not ask for in this visit, goes to others.
func (g *Gate) EndVisit(id string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiters[id] {
		if w.asked {
			w.asked = false
			continue
		}
		g.giveBack(w)
		g.forget(w)
	}
	g.advance()
}

func (g *Gate) leave(c Caller, probe bool, done func(error), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slots.free(c)
	if probe {
		g.probing = false
	}
	g.breaker.note(c, err)
	done(err)
	if failed(err) && g.breaker.State() != gobreaker.StateClosed {
		g.park(c) // it goes on when the others do, however long its own back-off would be
	}
	g.advance()
}

// Witness notes how a call ended that passed no gate: the renewal of a lease, say, by its service, or with none a list of
// all that there is. One that failed shows that it is not a single service which has a trouble of its own. It opens no
// breaker by itself, and makes room for nobody.
func (g *Gate) Witness(service string, err error) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breaker.witness(service, err)
}

// lets reports whether there is a slot for a caller whom nobody has called.
func (g *Gate) lets(c Caller) bool {
	switch g.breaker.State() {
	case gobreaker.StateOpen:
		return false
	case gobreaker.StateHalfOpen:
		return !g.probing && g.slots.room(c)
	default:
		return g.slots.room(c)
	}
}

// advance calls those whose turn it is. So nobody is in line who could be let through, and nobody needs to look whether
// there is: who finds a slot overtakes no one.
func (g *Gate) advance() {
	for w := g.next(); w != nil; w = g.next() {
		g.slots.take(w.Caller)
		g.calls++
		w.called, w.number = true, g.calls
		w.Wake()
	}
}

// next takes the one out of line whose turn it is, or returns nil. The probe of a registry that was down is best made for
// a service that has not failed, which would else be held up by those that have.
func (g *Gate) next() *waiter {
	switch g.breaker.State() {
	case gobreaker.StateOpen:
		return nil
	case gobreaker.StateHalfOpen:
		if g.probing {
			return nil
		}
		w := g.first(func(c Caller) bool { return g.slots.room(c) && !g.breaker.failing[c.Service] })
		if w == nil {
			w = g.first(g.slots.room)
		}
		g.probing = w != nil
		return w
	default:
		return g.first(g.slots.room)
	}
}

func (g *Gate) first(may func(Caller) bool) *waiter {
	if w := g.urgent.take(may); w != nil {
		return w
	}
	return g.others.take(may)
}

// park gives the caller a place in line, or leaves it where it is.
func (g *Gate) park(c Caller) {
	w := g.waiters[c.ID][c.Service]
	switch {
	case w == nil:
		w = &waiter{Caller: c}
		if g.waiters[c.ID] == nil {
			g.waiters[c.ID] = map[string]*waiter{}
		}
		g.waiters[c.ID][c.Service] = w
		g.lineOf(w).add(w)
	case w.Urgent != c.Urgent:
		g.lineOf(w).remove(w)
		w.Caller = c
		g.lineOf(w).add(w)
	}
	w.asked = true
}

// lineUp puts one who was called back into line, before those who were not.
func (g *Gate) lineUp(w *waiter) {
	g.giveBack(w)
	w.called = false
	g.lineOf(w).putBack(w)
}

// giveBack frees the slot that is kept for one who was called.
func (g *Gate) giveBack(w *waiter) {
	if !w.called {
		return
	}
	g.slots.free(w.Caller)
	g.probing = false // only the probe is called while the breaker is half-open, and else it is not set
}

// forget takes the waiter, who may be nil, out of everything but the slots.
func (g *Gate) forget(w *waiter) {
	if w == nil {
		return
	}
	if !w.called {
		g.lineOf(w).remove(w)
	}
	delete(g.waiters[w.ID], w.Service)
	if len(g.waiters[w.ID]) == 0 {
		delete(g.waiters, w.ID)
	}
}

func (g *Gate) lineOf(w *waiter) *line {
	if w.Urgent {
		return &g.urgent
	}
	return &g.others
}

// breakerMoved is called by the breaker, with the lock held: nobody else uses it.
func (g *Gate) breakerMoved(to gobreaker.State) {
	g.probing = false
	if to != gobreaker.StateOpen {
		return
	}
	var called []*waiter
	for _, byService := range g.waiters {
		for _, w := range byService {
			if w.called {
				called = append(called, w)
			}
		}
	}
	slices.SortFunc(called, func(a, b *waiter) int { return cmp.Compare(b.number, a.number) })
	for _, w := range called {
		g.lineUp(w)
	}
	time.AfterFunc(g.breaker.untilProbe(), g.probe)
}

// probe calls the one who makes the next probe, if anybody waits. Else the next one who comes makes it.
func (g *Gate) probe() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance()
}

func (g *Gate) refusal() *Refusal {
	if g.breaker.State() == gobreaker.StateClosed {
		return &Refusal{}
	}
	return &Refusal{Outage: new(g.breaker.outage)}
}

// Status is what a gate shows of itself.
type Status struct {
	// Slots is how many there are, and InUse how many are taken.
	Slots, InUse int
	// Queued is how many calls wait for their turn.
	Queued int
	// Breaker is one of [BreakerStates].
	Breaker string
}

// Status may be called at any time.
func (g *Gate) Status() Status {
	if g == nil {
		return Status{Breaker: stateName(gobreaker.StateClosed)}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{
		Slots: g.slots.limit, InUse: g.slots.total, Queued: g.urgent.size + g.others.size,
		Breaker: stateName(g.breaker.State()),
	}
}
