package registryclient

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// fixedSlots are those of a registry whose latency tells nothing of it: see [fixed].
const fixedSlots = 96

// recheck finds slots that woken callers did not take.
const recheck = 100 * time.Millisecond

// scanned is how many services of a namespace are compared for a turn: one can have very many.
const scanned = 64

var errQueued = errors.New("waits for a slot: all of the registry's are taken, or seven eighths of them by the same namespace or " +
	"service, and half while another one waits")

// limit bounds the calls under way by the slots that [adaptive] finds, and queues the rest without blocking. Of 16 slots:
//
//	one namespace                           at most 8, and 14 while none of another waits
//	one service, or all calls that yield    the same: one that hangs leaves two to the next
//	non-urgent calls                        at most 12
//
// A free slot goes to the namespace with the fewest calls under way, of those to the one that had its last turn first, and there to the
// service with the fewest: however many services, pods and calls one namespace has, another's call is next but a few.
//
// No slot is reserved for a woken caller: if another takes it first, it is queued again. Changes of one endpoint are made one after the
// other: a registry that looks before it deletes could take the next pod's entry for the one that it saw.
type limit struct {
	// lets: see [breaker.lets].
	lets func() int
	// fixed: see [fixed].
	fixed func() bool

	mu            sync.Mutex
	adaptive      *adaptive
	taken, others int
	byService     map[sharer]int
	byNamespace   map[group]int
	// changing are the endpoints of the changes under way.
	changing map[endpoint]bool
	// former is that of the client before of the same registry, whose changes may be under way; nil for none.
	former *limit
	// waiting are the queued calls, sharers and groups how many of each; others in lines are skipped.
	waiting map[turn]*call
	sharers map[sharer]int
	groups  map[group]int
	// lines are the usual calls, the urgent ones, and calls that yield.
	lines [3]line
	// turns counts them, and last has a namespace's last.
	turns int
	last  map[group]int
	tries int
	timer *time.Timer
}

// line has the calls that wait, by namespace and service.
type line map[group]map[sharer][]*call

// group is a namespace's calls; calls that yield are a group of their own.
type group struct {
	namespace string
	yields    bool
}

// sharer is whose share of the slots a call takes from: a service in a namespace. Those that yield share one, and so take none from their
// services.
type sharer struct {
	group

	service string
}

// turn: a pod has several with several ports, or an application's entry.
type turn struct {
	id, operation string
	endpoint
}

type endpoint struct {
	service, address string
	port             int
	apps             bool
}

func newLimit(maxInFlight int, lets func() int, fixed func() bool) *limit {
	return &limit{
		lets: lets, fixed: fixed, adaptive: newAdaptive(maxInFlight), byService: map[sharer]int{}, byNamespace: map[group]int{},
		changing: map[endpoint]bool{}, waiting: map[turn]*call{}, sharers: map[sharer]int{}, groups: map[group]int{},
		lines: [3]line{{}, {}, {}}, last: map[group]int{},
	}
}

func (l *limit) pass(ctx context.Context, c *call, next handler) (err error) {
	entered, measured := l.enter(c)
	if !entered {
		return &outcomeError{outcome: Queued, err: errQueued}
	}
	defer func() { l.leave(c, measured, err) }()
	return next(ctx, c)
}

// enter also begins to measure a change: what is only asked may be answered faster.
func (l *limit) enter(c *call) (entered bool, measured *trip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.room(c) {
		l.add(c)
		return false, nil
	}
	l.drop(c.turn())
	l.count(c, 1)
	if c.changes() {
		l.changing[c.endpoint()] = true
	}
	if c.changes() && !l.fixed() {
		measured = l.adaptive.begin(time.Now(), l.taken)
	}
	return true, measured
}

func (l *limit) leave(c *call, measured *trip, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(c, -1)
	if c.changes() {
		delete(l.changing, c.endpoint())
	}
	before := l.slots()
	if measured != nil {
		l.adaptive.end(measured, time.Now(), err, len(l.waiting) > 0)
	}
	l.wake(1 + max(l.slots()-before, 0))
}

func (l *limit) slots() int {
	if l.fixed() {
		return min(l.adaptive.most, fixedSlots)
	}
	return l.adaptive.open()
}

// queue is for callers that the breaker refused.
func (l *limit) queue(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(c)
}

func (l *limit) withdraw(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(c.turn())
}

func (l *limit) room(c *call) bool {
	slots := l.slots()
	return l.taken < slots && (c.Urgent || l.others < unreserved(slots)) && !l.changes(c) && l.roomOf(c.group()) &&
		l.byService[c.sharer()] < max(share(slots, max(slots/8, 1), anotherWaits(l.sharers, c.sharer())), 1)
}

// roomOf is for all calls of a namespace.
func (l *limit) roomOf(of group) bool {
	slots := l.slots()
	return of.yields || l.byNamespace[of] < max(share(slots, slots/8, anotherWaits(l.groups, of)), 1)
}

// share is how many slots one may have, of which some are left to others.
func share(slots, left int, anotherWaits bool) int {
	if anotherWaits {
		return slots / 2
	}
	return slots - left
}

func anotherWaits[K comparable](waiting map[K]int, own K) bool {
	return len(waiting) > min(waiting[own], 1)
}

// changes reports whether another change of the endpoint is under way, here or by the client before.
func (l *limit) changes(c *call) bool {
	return c.changes() && (l.changing[c.endpoint()] || l.former.isChanging(c.endpoint()))
}

// isChanging accepts nil.
func (l *limit) isChanging(at endpoint) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changing[at]
}

func (l *limit) succeeds(former *limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.former = former
}

// unreserved slots are also for calls that are not urgent.
func unreserved(slots int) int { return slots - slots/4 }

// drop forgets a queued call.
func (l *limit) drop(of turn) {
	c := l.waiting[of]
	if c == nil {
		return
	}
	delete(l.waiting, of)
	add(l.sharers, c.sharer(), -1)
	if !c.Yields {
		add(l.groups, c.group(), -1)
	}
}

// add leaves no zero behind.
func add[K comparable](counts map[K]int, of K, n int) {
	if counts[of] += n; counts[of] == 0 {
		delete(counts, of)
	}
}

func (l *limit) count(c *call, n int) {
	l.taken += n
	if !c.Urgent {
		l.others += n
	}
	add(l.byService, c.sharer(), n)
	add(l.byNamespace, c.group(), n)
}

func (c *call) group() group { return group{c.Instance.Namespace, c.Yields} }

func (c *call) sharer() sharer {
	if c.Yields {
		return sharer{group: group{yields: true}}
	}
	return sharer{c.group(), c.Instance.Service}
}

// add keeps a queued call's turn unless its urgency has changed.
func (l *limit) add(c *call) {
	if before := l.waiting[c.turn()]; before != nil && before.Urgent == c.Urgent && before.Yields == c.Yields {
		before.Caller = c.Caller
		return
	}
	among := l.lines[0]
	switch {
	case c.Urgent:
		among = l.lines[1]
	case c.Yields:
		among = l.lines[2]
	}
	l.drop(c.turn())
	l.waiting[c.turn()] = c
	add(l.sharers, c.sharer(), 1)
	if !c.Yields {
		add(l.groups, c.group(), 1)
	}
	if among[c.group()] == nil {
		among[c.group()] = map[sharer][]*call{}
	}
	among[c.group()][c.sharer()] = append(among[c.group()][c.sharer()], c)
	l.arm()
}

// wake wakes up to n callers, urgent ones first. During an outage the lines alternate: urgent calls may be of one broken service.
func (l *limit) wake(n int) {
	lets, first := l.lets(), 1
	if lets == 1 {
		l.tries++
		first = l.tries % 2
	}
	var woken []*call
	for range min(n, lets, len(l.waiting)) {
		c := cmp.Or(l.next(l.lines[first]), l.next(l.lines[1-first]), l.next(l.lines[2]))
		if c == nil {
			break
		}
		l.drop(c.turn())
		l.count(c, 1) // for next
		l.turns++
		l.last[c.group()] = l.turns
		woken = append(woken, c)
	}
	for _, c := range woken {
		l.count(c, -1)
		c.Wake()
	}
}

// next prefers the namespace, and in it the service, with the fewest calls under way.
func (l *limit) next(among line) (c *call) {
	for of, services := range among {
		if c != nil && !l.before(of, c.group()) || !l.roomOf(of) {
			continue
		}
		if first := l.firstOf(services); first != nil {
			c = first
		}
		if len(services) == 0 {
			delete(among, of)
		}
	}
	return c
}

// before reports whether it is the namespace's turn before the other's.
func (l *limit) before(of, other group) bool {
	return cmp.Or(cmp.Compare(l.byNamespace[of], l.byNamespace[other]), cmp.Compare(l.last[of], l.last[other])) < 0
}

func (l *limit) firstOf(services map[sharer][]*call) (c *call) {
	seen := 0
	for of, calls := range services {
		calls = l.first(calls)
		if services[of] = calls; len(calls) == 0 {
			delete(services, of)
			continue
		}
		if l.room(calls[0]) && (c == nil || l.byService[of] < l.byService[c.sharer()]) {
			c = calls[0]
		}
		if seen++; seen >= scanned {
			break
		}
	}
	return c
}

// first leaves out what does not wait any more, and moves to the end what waits for another change of its endpoint.
func (l *limit) first(calls []*call) []*call {
	for range calls {
		switch head := calls[0]; {
		case l.waiting[head.turn()] != head:
			calls = calls[1:]
		case l.changes(head):
			calls = append(calls[1:], head)
		default:
			return calls
		}
	}
	return calls
}

func (l *limit) arm() {
	switch {
	case l.timer != nil:
		return
	case len(l.waiting) == 0:
		l.lines, l.last = [3]line{{}, {}, {}}, map[group]int{}
		return
	}
	l.timer = time.AfterFunc(recheck, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timer = nil
		l.adaptive.look(time.Now(), len(l.waiting) > 0)
		l.wake(math.MaxInt)
		l.arm()
	})
}

func (l *limit) resize(maxInFlight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adaptive.resize(maxInFlight)
	l.wake(math.MaxInt)
}

func (l *limit) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.waiting)
	clear(l.sharers)
	clear(l.groups)
}

func (l *limit) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{Slots: l.slots(), InUse: l.taken, Queued: len(l.waiting)}
}
