package tracker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	walks   = 2500
	steps   = 40
	timeout = 2 * time.Second
	// straggles is how long after an error a call that did not time out may still be carried out.
	straggles = 100 * time.Millisecond
)

// truth is one instance in a registry as it really is.
type truth struct {
	now   time.Time
	state lifecycle.Want
	// lastIn is when it was in service last; zero where it never was.
	lastIn time.Time
	// pending are changes that are still on their way.
	pending []effect
}

type effect struct {
	want lifecycle.Want
	at   time.Time
}

// pass lets time pass, in which changes land.
func (r *truth) pass(d time.Duration) {
	end := r.now.Add(d)
	slices.SortStableFunc(r.pending, func(a, b effect) int { return a.at.Compare(b.at) })
	for len(r.pending) > 0 && !r.pending[0].at.After(end) {
		if r.state == lifecycle.InService {
			r.lastIn = r.pending[0].at
		}
		r.state, r.pending = r.pending[0].want, r.pending[1:]
	}
	if r.now = end; r.state == lifecycle.InService {
		r.lastIn = end
	}
}

// walk is one instance, what is known of it, and how it really is.
type walk struct {
	t     *testing.T
	rng   *rand.Rand
	known Instance
	truth truth
	// listing is a list that was asked for and is not compared yet.
	listing *Sighting
	asked   time.Time
	trace   []string
}

func in() registry.Instance {
	return registry.Instance{Service: "web", Address: "10.0.0.1", Port: 8080, Cluster: "c", Namespace: "shop", Pod: "web-1", UID: "1"}
}

func (w *walk) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%s ", w.truth.now.Format("04:05.000"))+fmt.Sprintf(format, args...))
}

// become replaces what is known, and proves that what was known before is as it was.
func (w *walk) become(to func(Instance) Instance) {
	before := w.known
	before.late = maps.Clone(before.late)
	kept := before
	kept.late = maps.Clone(before.late)
	w.known = to(before)
	if !reflect.DeepEqual(before, kept) {
		w.t.Fatalf("a method changed what it was called on: %+v, was %+v", before, kept)
	}
}

func (w *walk) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d) + 1)) }

// change is one call that ends in one of all ways.
func (w *walk) change(want lifecycle.Want) {
	if want == lifecycle.Absent {
		w.become(Instance.letGo)
	}
	began := w.truth.now
	w.become(func(i Instance) Instance { return i.begin(want, in(), began) })
	land := func(at time.Time) { w.truth.pending = append(w.truth.pending, effect{want, at}) }
	switch how := w.rng.IntN(8); how {
	case 0:
		w.logf("%s is refused", want)
		w.truth.pass(w.upTo(time.Second))
		w.become(func(i Instance) Instance { return i.fail(time.Time{}) })
	case 1:
		w.logf("%s fails and is done all the same", want)
		w.become(func(i Instance) Instance { return i.fail(time.Time{}) })
		land(began.Add(w.upTo(straggles)))
	case 2, 3, 4:
		w.logf("%s times out", want)
		lands := began.Add(2 * timeout)
		if how != 3 {
			land(began.Add(w.upTo(2*timeout - 1)))
		}
		w.truth.pass(timeout)
		w.become(func(i Instance) Instance { return i.fail(lands) })
	default:
		takes := w.upTo(timeout - 1)
		land(began.Add(w.upTo(takes)))
		w.truth.pass(takes)
		w.logf("%s is acknowledged", want)
		w.become(func(i Instance) Instance { return i.acknowledge(w.truth.now) })
	}
}

// next is the next step towards what was asked for last.
func (w *walk) next() Step {
	return w.known.Next(Goal{Want: w.known.want, Told: in(), Gets: true}, w.truth.now)
}

// readBack asks the registry where that is the next step. What failed is over by then, see straggles.
func (w *walk) readBack() {
	if w.next().Act != Ask {
		return
	}
	w.truth.pass(straggles)
	asked := w.truth.now
	state := map[lifecycle.Want]registry.State{
		lifecycle.InService: registry.InService, lifecycle.OutOfService: registry.OutOfService, lifecycle.Absent: registry.Absent,
	}[w.truth.state]
	w.logf("it says %s", state)
	if w.truth.state == w.known.want {
		w.become(func(i Instance) Instance { return i.confirm(asked) })
		return
	}
	w.become(func(i Instance) Instance { return i.contradict(state) })
}

func (w *walk) list() {
	before := w.known
	switch {
	case w.listing == nil && w.asked.IsZero():
		w.asked = w.truth.now
		if w.truth.state != lifecycle.Absent {
			w.listing = &Sighting{Instance: in(), State: registry.OutOfService, AsOf: w.asked}
			if w.truth.state == lifecycle.InService {
				w.listing.State = registry.InService
			}
		}
		w.logf("a list is made: %s", w.truth.state)
		return
	case w.listing != nil:
		w.become(func(i Instance) Instance { after, _, _ := i.sight(*w.listing); return after })
	default:
		w.become(func(i Instance) Instance { after, _ := i.miss(w.asked); return after })
	}
	if before.AcknowledgedAt.After(w.asked) && !reflect.DeepEqual(before, w.known) {
		w.broken("a list of before the acknowledgement counts: %+v, was %+v", w.known, before)
	}
	w.logf("the list is compared")
	w.listing, w.asked = nil, time.Time{}
}

// certain reports whether something rests on what is known: nothing is left to do.
func (w *walk) certain() bool { return w.known.attempted() && w.next().Act == Nothing }

// rest has the registry answer from now on: what is wanted then is soon certain.
func (w *walk) rest() {
	w.truth.pass(2 * timeout)
	for range 3 {
		if !w.known.Stands(lifecycle.OutOfService) || w.next().Act == Change {
			began := w.truth.now
			w.become(func(i Instance) Instance { return i.begin(lifecycle.OutOfService, in(), began) })
			w.truth.pending = append(w.truth.pending, effect{lifecycle.OutOfService, began})
			w.truth.pass(time.Millisecond)
			w.become(func(i Instance) Instance { return i.acknowledge(w.truth.now) })
		}
		w.readBack()
		w.check()
	}
	if !w.certain() {
		w.broken("the registry has answered for a while, and nothing is certain: %+v", w.known)
	}
}

// check holds what is claimed against the truth.
func (w *walk) check() {
	i := w.known
	if !w.certain() {
		return
	}
	if w.truth.state != i.want {
		w.broken("it counts as %s, and is %s", i.want, w.truth.state)
	}
	for _, e := range w.truth.pending {
		if e.want != i.want {
			w.broken("it counts as %s, and will be %s", i.want, e.want)
		}
	}
	if removedAt, _ := i.RemovedAt(0); i.want != lifecycle.InService && removedAt.Before(w.truth.lastIn) {
		w.broken("it was in service at %s, after its drain began at %s", w.truth.lastIn.Format("04:05.000"), removedAt.Format("04:05.000"))
	}
	if kept := i.lives(); kept == (i.want == lifecycle.Absent) {
		w.broken("it is kept alive: %t, although it is %s", kept, i.want)
	}
}

func (w *walk) broken(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.trace {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// TestWalk has changes end in all ways, land late, be listed and be read back, at random, and holds what the process takes
// for certain against the truth at every step.
func TestWalk(t *testing.T) {
	t.Parallel()
	certain := 0
	for seed := range uint64(walks) {
		w := &walk{
			t: t, rng: rand.New(rand.NewPCG(seed, seed)),
			truth: truth{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), state: lifecycle.Absent},
		}
		w.logf("seed %d", seed)
		for range steps {
			switch w.rng.IntN(8) {
			case 0, 1:
				w.change(lifecycle.InService)
			case 2:
				w.change(lifecycle.OutOfService)
			case 3:
				w.change(lifecycle.Absent)
			case 4:
				w.truth.pass(w.upTo(2 * timeout))
				w.become(func(i Instance) Instance { i.removing = false; return i })
			case 5:
				w.list()
			default:
				w.readBack()
			}
			w.check()
			if w.certain() {
				certain++
			}
		}
		w.rest()
	}
	if certain < walks {
		t.Errorf("something was certain %d times in %d walks: they prove too little", certain, walks)
	}
}
