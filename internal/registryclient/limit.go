package registryclient

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// recheck finds slots that woken callers did not take.
const recheck = 100 * time.Millisecond

var errQueued = errors.New("waits for a slot: as many calls are under way as the registry's maxInFlight allows, or three " +
	"quarters of them for the same service, and half while another service waits")

// limit bounds the calls under way, and queues the rest without blocking. Of 16 slots:
//
//	one service, or all calls that yield    at most 8, and 12 while none of another waits
//	non-urgent calls                        at most 12
//
// No slot is reserved for a woken caller: if another takes it first, it is queued again.
type limit struct {
	// lets: see [breaker.lets].
	lets func() int

	mu                   sync.Mutex
	slots, taken, others int
	byService            map[string]int
	// waiting are the queued calls, and sharers how many of each; others in lines are skipped.
	waiting map[place]*call
	sharers map[string]int
	// lines are by service: the usual calls, the urgent ones, those that yield.
	lines [3]map[string][]*call
	tries int
	timer *time.Timer
}

// place: a pod has several with several ports, or an application's entry.
type place struct {
	id, operation, service, address string
	port                            int
	apps                            bool
}

func newLimit(maxInFlight int, lets func() int) *limit {
	return &limit{
		lets: lets, slots: maxInFlight, byService: map[string]int{}, waiting: map[place]*call{}, sharers: map[string]int{},
		lines: [3]map[string][]*call{{}, {}, {}},
	}
}

func (l *limit) pass(ctx context.Context, c *call, next handler) error {
	if !l.enter(c) {
		return &outcomeError{outcome: Queued, err: errQueued}
	}
	defer l.leave(c)
	return next(ctx, c)
}

func (l *limit) enter(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.room(c) {
		l.add(c)
		return false
	}
	l.drop(c.place())
	l.count(c, 1)
	return true
}

func (l *limit) leave(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(c, -1)
	l.wake(1)
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
	l.drop(c.place())
}

func (l *limit) room(c *call) bool {
	share := l.slots - max(l.slots/4, 1)
	if len(l.sharers) > min(l.sharers[c.sharer()], 1) { // another waits
		share = l.slots / 2
	}
	return l.taken < l.slots && l.byService[c.sharer()] < max(share, 1) && (c.Urgent || l.others < l.slots-l.slots/4)
}

// drop forgets a queued call.
func (l *limit) drop(at place) {
	c := l.waiting[at]
	if c == nil {
		return
	}
	delete(l.waiting, at)
	if l.sharers[c.sharer()]--; l.sharers[c.sharer()] == 0 {
		delete(l.sharers, c.sharer())
	}
}

func (l *limit) count(c *call, n int) {
	l.taken += n
	if !c.Urgent {
		l.others += n
	}
	if l.byService[c.sharer()] += n; l.byService[c.sharer()] == 0 {
		delete(l.byService, c.sharer())
	}
}

// sharer is whose share of the slots a call takes from. Those that yield share one, and so take none from their services.
func (c *call) sharer() string {
	if c.Yields {
		return ""
	}
	return c.Instance.Service
}

// add keeps a queued call's place unless its urgency has changed.
func (l *limit) add(c *call) {
	if before := l.waiting[c.place()]; before != nil && before.Urgent == c.Urgent && before.Yields == c.Yields {
		before.Caller = c.Caller
		return
	}
	line := l.lines[0]
	switch {
	case c.Urgent:
		line = l.lines[1]
	case c.Yields:
		line = l.lines[2]
	}
	l.drop(c.place())
	l.waiting[c.place()] = c
	l.sharers[c.sharer()]++
	line[c.sharer()] = append(line[c.sharer()], c)
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
		l.drop(c.place())
		l.count(c, 1) // for next
		woken = append(woken, c)
	}
	for _, c := range woken {
		l.count(c, -1)
		c.Wake()
	}
}

// next prefers the service with the fewest calls under way.
func (l *limit) next(line map[string][]*call) (c *call) {
	for service, calls := range line {
		for len(calls) > 0 && l.waiting[calls[0].place()] != calls[0] {
			calls = calls[1:]
		}
		if line[service] = calls; len(calls) == 0 {
			delete(line, service)
		} else if l.room(calls[0]) && (c == nil || l.byService[service] < l.byService[c.sharer()]) {
			c = calls[0]
		}
	}
	return c
}

func (l *limit) arm() {
	switch {
	case l.timer != nil:
		return
	case len(l.waiting) == 0:
		l.lines = [3]map[string][]*call{{}, {}, {}}
		return
	}
	l.timer = time.AfterFunc(recheck, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timer = nil
		l.wake(math.MaxInt)
		l.arm()
	})
}

func (l *limit) resize(maxInFlight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots = maxInFlight
	l.wake(math.MaxInt)
}

func (l *limit) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.waiting)
	clear(l.sharers)
}

func (l *limit) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{Slots: l.slots, InUse: l.taken, Queued: len(l.waiting)}
}
