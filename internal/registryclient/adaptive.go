package registryclient

import (
	"cmp"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// firstSlots are the slots at first, and the fewest.
	firstSlots = 20
	restFor    = 4
	// justBegun is the part of the usual latency for which a call counts as begun now.
	justBegun = 8
)

// adaptive finds how many calls a registry takes at a time, as TCP does for a network. While callers wait, it tries twice the slots, or
// a quarter more near a number that was too many, and keeps them unless 2/9 of the calls are late. If 3/10 are late with slots that were
// kept, it starts again with few calls, which show the usual latency.
//
// No library fits: failsafe-go's limiter moves by one call a second, and go-concurrency-limits raises the limit with each answer, before
// any shows what the last raise did. A storm of 300 pods is four rounds of calls.
type adaptive struct {
	most, slots int
	// usual is the latency of calls that began with few under way.
	usual usualLatency
	// out are calls that may become late, oldest first.
	out []*trip
	// since is when slots changed. The calls are those since then, or since the last verdict.
	since, lowered           time.Time
	inTime, late, lateOfKept int
	// kept is what a try returns to, or 0. A try is one round of calls, which is full when they have begun.
	kept, begun int
	full        bool
	// failed were too many slots, and longest is how long calls took with them. For the next try, rest verdicts have to go by.
	failed, rest int
	longest      time.Duration
}

// trip is a call that is measured.
type trip struct {
	began       time.Time
	few, judged bool
}

func newAdaptive(most int) *adaptive { return &adaptive{most: most, slots: min(most, firstSlots)} }

// open is how many slots there are. A round takes as long again to show what came of it.
func (a *adaptive) open() int {
	if a.kept > 0 && a.full {
		return a.kept
	}
	return a.slots
}

func (a *adaptive) begin(now time.Time, underWay int) *trip {
	a.fill(now)
	t := &trip{began: now, few: underWay <= firstSlots, judged: a.kept > 0 && a.full}
	if !t.judged {
		a.out = append(a.out, t)
		a.begun++
		a.full = a.begun >= unreserved(a.slots)
	}
	return t
}

func (a *adaptive) end(t *trip, now time.Time, err error, waiting bool) {
	a.look(now, waiting)
	recent, outcome := !t.began.Before(a.since), Classify(err)
	_, overloaded := registry.RetryAfterOf(err)
	switch {
	case !outcome.Asked():
		a.giveUp()
	case overloaded && recent:
		a.late += a.slots
	case overloaded || outcome == Retryable || outcome == TimedOut:
		a.failedCall(t, recent)
	default:
		a.answered(now.Sub(t.began), t.few, recent, now)
		if recent && !t.judged {
			a.inTime++
		}
	}
	t.judged = true
	a.judge(now, waiting)
}

// failedCall counts as late. What is left over of a try that has ended means nothing for the slots that were kept.
func (a *adaptive) failedCall(t *trip, recent bool) {
	switch {
	case t.judged:
	case recent:
		a.late++
	case a.kept > 0:
		a.lateOfKept++
	}
}

func (a *adaptive) answered(took time.Duration, few, recent bool, now time.Time) {
	unknown := !a.usual.known()
	switch {
	case unknown && !recent:
		a.longest = max(a.longest, took)
	case few:
		a.usual.add(took)
	}
	asSlow := a.longest > 0 && !a.usual.isLate(a.longest) || a.failed <= firstSlots
	if unknown && a.usual.known() && a.failed > 0 && asSlow { // it is as slow with few
		a.set(min(max(a.failed, a.slots), a.most), 0, now)
		a.failed = 0
	}
}

// look counts calls that are late by now. Those that began before slots were lowered have as long again.
func (a *adaptive) look(now time.Time, waiting bool) {
	for len(a.out) > 0 && (a.out[0].judged || a.usual.isLate(min(now.Sub(a.out[0].began), now.Sub(a.lowered)))) {
		t := a.out[0]
		switch a.out = a.out[1:]; {
		case t.judged:
		case a.kept > 0 && t.began.Before(a.since):
			a.lateOfKept++
		default:
			a.late++
		}
		t.judged = true
	}
	a.fill(now)
	a.judge(now, waiting)
}

// fill ends the round of a try, and the try if too few came.
func (a *adaptive) fill(now time.Time) {
	if a.kept > 0 && !a.full && now.Sub(a.since) > a.usual.average {
		if a.full = true; 2*a.begun < unreserved(a.slots) {
			a.giveUp()
		}
	}
}

// giveUp ends a try that shows nothing.
func (a *adaptive) giveUp() {
	if a.kept > 0 {
		a.slots, a.kept = a.kept, 0
	}
}

func (a *adaptive) judge(now time.Time, waiting bool) {
	calls, tries := unreserved(a.slots), a.kept > 0
	allowed := 3 * calls / 10
	if tries {
		allowed = 2 * calls / 9
	}
	if tries && a.full {
		calls = min(calls, a.begun)
	}
	switch {
	case tries && a.lateOfKept > 3*unreserved(a.kept)/10, !tries && a.late > allowed:
		a.usual, a.longest, a.failed, a.rest = usualLatency{}, 0, cmp.Or(a.kept, a.slots), 0
		a.set(min(a.slots, firstSlots), 0, now)
	case tries && a.late > allowed:
		a.failed, a.rest = a.slots, restFor
		a.set(a.kept, 0, now)
	case a.inTime+a.late >= calls && a.usual.known():
		a.fine(now, waiting)
	}
}

// fine ends a try, and begins one.
func (a *adaptive) fine(now time.Time, waiting bool) {
	if a.kept > 0 && a.failed > 0 {
		a.rest = 1 // a round may have had luck
	}
	a.inTime, a.late, a.kept = 0, 0, 0
	if a.slots >= 2*a.failed {
		a.failed = 0
	}
	if a.rest--; a.rest >= 0 || !waiting || a.slots >= a.most {
		return
	}
	next := 2 * a.slots
	if a.failed > 0 && next > a.failed-a.failed/5 {
		next = a.slots + max(a.slots/4, 1)
	}
	a.set(min(next, a.most), a.slots, now)
	// Calls of the last moment are under way for nearly as long as the round's.
	for a.since = now.Add(-a.usual.average / justBegun); a.begun < len(a.out) && !a.out[len(a.out)-1-a.begun].began.Before(a.since); {
		a.begun++
	}
}

func (a *adaptive) set(slots, kept int, now time.Time) {
	if slots <= a.slots {
		a.lowered = now
	}
	a.slots, a.kept, a.since = slots, kept, now
	a.begun, a.full, a.inTime, a.late, a.lateOfKept = 0, false, 0, 0, 0
}

func (a *adaptive) resize(most int) {
	a.most, a.slots, a.kept = most, min(max(a.slots, firstSlots), most), min(a.kept, most)
}
