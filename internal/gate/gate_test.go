package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
)

var errDown = errors.New("connection refused")

// street is a gate with callers before it, and what they were told.
type street struct {
	*testing.T
	gate   *Gate
	inside map[string]func(error)
	woken  []string
	last   *Refusal
}

func newStreet(t *testing.T, maxInFlight int) *street {
	return &street{T: t, gate: New(maxInFlight), inside: map[string]func(error){}}
}

// caller reads "web/1", or "web/1!" for one who is urgent.
func (s *street) caller(name string) Caller {
	plain, urgent := strings.CutSuffix(name, "!")
	service, _, _ := strings.Cut(plain, "/")
	return Caller{ID: plain, Service: service, Urgent: urgent, Wake: func() { s.woken = append(s.woken, name) }}
}

// comes is one whole visit of a caller.
func (s *street) comes(name string) (admitted bool) {
	c := s.caller(name)
	leave, refused := s.gate.Enter(c)
	s.gate.EndVisit(c.ID)
	if refused != nil {
		s.last = refused
		return false
	}
	s.inside[c.ID] = leave
	return true
}

func (s *street) come(names ...string) {
	for _, name := range names {
		s.comes(name)
	}
}

func (s *street) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *street) leaves(name string, err error) {
	s.Helper()
	id := s.caller(name).ID
	leave := s.inside[id]
	if leave == nil {
		s.Fatalf("%s is not inside", name)
	}
	delete(s.inside, id)
	leave(err)
}

func (s *street) expectInside(why string, want ...string) {
	s.Helper()
	var got []string
	for id := range s.inside {
		got = append(got, id)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("inside (-want +got):\n%swhy: %s", diff, why)
	}
}

func (s *street) expectWoken(why string, want ...string) {
	s.Helper()
	got := s.woken
	s.woken = nil
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("woken (-want +got):\n%swhy: %s", diff, why)
	}
}

// expectEmpty is what holds of a gate when everybody has gone.
func (s *street) expectEmpty() {
	s.Helper()
	got := s.gate.Status()
	got.Slots, got.Breaker = 0, ""
	if diff := cmp.Diff(Status{}, got); diff != "" {
		s.Errorf("left behind (-want +got):\n%s", diff)
	}
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	if n := len(s.gate.waiters) + len(s.gate.slots.byService) + s.gate.slots.others + len(s.gate.urgent.places) + len(s.gate.others.places); n != 0 {
		s.Errorf("the gate keeps %d things of those who have gone", n)
	}
}

func TestWhoGetsASlot(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		slots  int
		come   string
		want   string
	}{
		"half for one service": {
			reason: "a service that hangs must leave the other half to the others",
			slots:  8, come: "web/1! web/2! web/3! web/4! web/5! api/1!", want: "api/1 web/1 web/2 web/3 web/4",
		},
		"a quarter is kept for what a rollout waits for": {
			reason: "services that hang must not hold up a rollout",
			slots:  8, come: "a/1 a/2 a/3 b/1 b/2 b/3 c/1 c/2! d/1! d/2!", want: "a/1 a/2 a/3 b/1 b/2 b/3 c/2 d/1",
		},
		"those who are urgent take nothing from the others but what is free": {
			reason: "the others' share is of what they have themselves",
			slots:  8, come: "a/1! a/2! b/1! b/2! c/1 c/2 c/3 c/4", want: "a/1 a/2 b/1 b/2 c/1 c/2 c/3 c/4",
		},
		"two": {
			reason: "the least that leaves something to another service",
			slots:  2, come: "web/1 web/2 api/1 api/2!", want: "api/1 web/1",
		},
		"one": {
			reason: "a half of one is one",
			slots:  1, come: "web/1 api/1!", want: "web/1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t, tc.slots)
			s.come(strings.Fields(tc.come)...)
			s.expectInside(tc.reason, strings.Fields(tc.want)...)
			if n := len(s.inside); s.gate.Status().InUse != n {
				t.Errorf("says that %d slots are in use, want %d", s.gate.Status().InUse, n)
			}
		})
	}
}

func TestTheSlotsChangeWhileCallsAreUnderWay(t *testing.T) {
	t.Parallel()
	s := newStreet(t, 4)
	s.come("web/1", "web/2", "web/3", "web/4", "api/1", "db/1")
	s.expectInside("half for one service, and a quarter for what a rollout waits for", "api/1", "web/1", "web/2")
	s.gate.SetSlots(8)
	s.expectWoken("there are more", "web/3", "db/1", "web/4")
	s.come("web/3", "db/1", "web/4")
	s.gate.SetSlots(4)
	s.come("cms/1!")
	s.expectInside("who is inside goes on, and nobody comes in before there is room", "api/1", "db/1", "web/1", "web/2", "web/3", "web/4")
	for _, name := range []string{"web/1", "web/2"} {
		s.leaves(name, nil)
	}
	s.expectWoken("four are still inside")
	s.leaves("api/1", nil)
	s.expectWoken("one slot of the four is free", "cms/1!")
	if got := s.gate.Status().Slots; got != 4 {
		t.Errorf("shows %d slots, want 4", got)
	}
}

func TestWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		slots  int
		come   string
		leave  string
		want   string
	}{
		"first come, first served": {
			reason: "a service's callers wait in one line",
			slots:  2, come: "web/1 web/2 web/3", leave: "web/1", want: "web/2",
		},
		"urgent first": {
			reason: "a rollout waits for it",
			slots:  2, come: "web/1 web/2 web/3!", leave: "web/1", want: "web/3!",
		},
		"services in turns": {
			reason: "one with a thousand callers is not to be served before one with a single one",
			slots:  4, come: "a/1 b/1 c/1 a/2 a/3 a/4 b/2", leave: "c/1 a/1 b/1", want: "a/2 b/2 a/3",
		},
		"a service that has its half lets others pass": {
			reason: "its callers wait for each other and hold up nobody",
			slots:  4, come: "web/1! web/2! api/1! api/2! web/3! db/1!", leave: "api/1", want: "db/1!",
		},
		"who gives up lets others pass": {
			reason: "the pod is gone, or needs no call any more",
			slots:  2, come: "web/1 web/2 web/3", leave: "-web/2 web/1", want: "web/3",
		},
		"who comes again keeps its place": {
			reason: "an event about a pod must not put it behind the others",
			slots:  2, come: "web/1 web/2 web/3 web/2", leave: "web/1", want: "web/2",
		},
		"who becomes urgent does not wait behind those who are not": {
			reason: "a pod that is queued to be registered may have to go",
			slots:  2, come: "web/1 web/2 web/3 web/3!", leave: "web/1", want: "web/3!",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t, tc.slots)
			s.come(strings.Fields(tc.come)...)
			for name := range strings.FieldsSeq(tc.leave) {
				if id, quits := strings.CutPrefix(name, "-"); quits {
					s.gate.EndVisit(id)
					continue
				}
				s.leaves(name, nil)
			}
			s.expectWoken(tc.reason, strings.Fields(tc.want)...)
		})
	}
}

func TestATurnIsKept(t *testing.T) {
	t.Parallel()
	s := newStreet(t, 2)
	s.come("web/1", "web/2", "web/3")
	s.leaves("web/1", nil)
	s.expectWoken("it is the first in line", "web/2")
	if s.comes("web/4") {
		t.Error("a newcomer got the slot that is kept for web/2")
	}
	if !s.comes("web/2!") {
		t.Error("web/2 was refused though it is its turn")
	}
	s.leaves("web/2", nil)
	s.expectWoken("the next one", "web/3")
	s.gate.EndVisit("web/3") // it came and needed no call
	s.expectWoken("the turn goes on at once, and nobody is called twice", "web/4")
	s.gate.EndVisit("web/4")
	s.expectEmpty()
}

func TestACallerWaitsForEachServiceByItself(t *testing.T) {
	t.Parallel()
	s := newStreet(t, 4)
	s.come("web/1!", "web/2!", "api/1!", "api/2!")
	pod := func(service string) Caller {
		return Caller{ID: "pod", Service: service, Urgent: true, Wake: func() { s.woken = append(s.woken, service) }}
	}
	for _, service := range []string{"web", "api"} {
		if _, refused := s.gate.Enter(pod(service)); refused == nil {
			t.Fatalf("%s has its half already", service)
		}
	}
	s.gate.EndVisit("pod")
	s.leaves("web/1!", nil)
	s.expectWoken("its place for web", "web")
	leave, refused := s.gate.Enter(pod("web"))
	if refused != nil {
		t.Fatal("was refused though it is its turn")
	}
	if _, refused := s.gate.Enter(pod("api")); refused == nil {
		t.Fatal("api has its half still")
	}
	s.gate.EndVisit("pod")
	leave(nil)
	s.leaves("api/1!", nil)
	s.expectWoken("its place for api was kept", "api")
	s.gate.EndVisit("pod")
	s.leaves("web/2!", nil)
	s.leaves("api/2!", nil)
	s.expectEmpty()
}

func TestANilGateLetsEverythingThrough(t *testing.T) {
	t.Parallel()
	var g *Gate
	leave, refused := g.Enter(Caller{})
	if refused != nil {
		t.Fatal("was refused")
	}
	leave(errDown)
	g.EndVisit("")
	if diff := cmp.Diff(Status{Breaker: "closed"}, g.Status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// fails has each caller make a call that fails.
func (s *street) fails(names ...string) {
	s.Helper()
	for _, name := range names {
		if !s.comes(name) {
			s.Fatalf("%s was refused", name)
		}
		s.leaves(name, errDown)
	}
}

func TestWhatOpensTheBreaker(t *testing.T) {
	t.Parallel()
	answer := func(err error) func(*street) {
		return func(s *street) {
			s.comes("cms/1")
			s.leaves("cms/1", err)
		}
	}
	witness := func(service string, errs ...error) func(*street) {
		return func(s *street) {
			for _, err := range errs {
				s.gate.Witness(service, err)
			}
		}
	}
	cases := map[string]struct {
		reason string
		before func(s *street)
		fail   string
		amid   func(s *street)
		more   string
		want   string
	}{
		"callers of several services": {
			reason: "the registry is down", fail: "web/1 web/2 web/3 api/1", more: "api/2", want: "open",
		},
		"one caller less": {
			reason: "the back-off of each is enough", fail: "web/1 web/2 web/3 api/1", want: "closed",
		},
		"few callers, again and again": {
			reason: "the back-off of each is enough", fail: "web/1 web/2 web/1 api/1 web/1 web/2 api/1", want: "closed",
		},
		"the only service there is": {
			reason: "the registry is down, as far as anybody can tell", fail: "web/1 web/2 web/3 web/4 web/5", want: "open",
		},
		"one service of two": {
			reason: "others must not be held up by a service that fails", before: answer(nil),
			fail: "web/1 web/2 web/3 web/4 web/5 web/6", want: "closed",
		},
		"one service, and another that has not called for long": {
			reason: "it may be there no more",
			before: func(s *street) {
				answer(nil)(s)
				s.wait(recent + time.Second)
				s.comes("web/1")
				s.leaves("web/1", nil)
				s.wait(recent + time.Second)
			},
			fail: "web/1 web/2 web/3 web/4 web/5", want: "open",
		},
		"one service of two, and a list": {
			reason: "a list is about all services", before: answer(nil),
			fail: "web/1 web/2 web/3 web/4", amid: witness("", errDown), more: "web/5", want: "open",
		},
		"one service of two, and a list that was not made": {
			reason: "says nothing", before: answer(nil),
			fail: "web/1 web/2 web/3 web/4", amid: witness("", Inconclusive(errDown)), more: "web/5", want: "closed",
		},
		"one service of two, and a list that was answered since": {
			reason: "the registry can be reached, as far as anybody can tell", before: answer(nil),
			fail: "web/1 web/2 web/3 web/4", amid: witness("", errDown, nil), more: "web/5", want: "closed",
		},
		"one service of two, and another one's renewals": {
			reason: "it is not only that service", before: answer(nil),
			fail: "web/1 web/2 web/3 web/4", amid: witness("cms", errDown), more: "web/5", want: "open",
		},
		"one service of two, and its own renewals": {
			reason: "it is still only that service", before: answer(nil),
			fail: "web/1 web/2 web/3 web/4", amid: witness("web", errDown), more: "web/5 web/6", want: "closed",
		},
		"a list, before another service was answered": {
			reason: "the registry could be reached since", before: func(s *street) {
				witness("", errDown)(s)
				answer(nil)(s)
			},
			fail: "web/1 web/2 web/3 web/4 web/5", want: "closed",
		},
		"callers of several services, and an answer to a list": {
			reason: "what can be read can perhaps not be written",
			fail:   "web/1 web/2 web/3 api/1", amid: witness("", nil), more: "api/2", want: "open",
		},
		"few callers, and a list": {
			reason: "the back-off of each is enough", fail: "web/1 web/2", amid: witness("", errDown), more: "web/3 api/1", want: "closed",
		},
		"an answer in between": {
			reason: "it can be reached", fail: "web/1 web/2 web/3 api/1", amid: answer(nil), more: "api/2", want: "closed",
		},
		"a refusal in between": {
			reason: "an answer too", fail: "web/1 web/2 web/3 api/1", amid: answer(registry.Terminal(errDown)), more: "api/2",
			want: "closed",
		},
		"an entry that is not there, in between": {
			reason: "an answer too", fail: "web/1 web/2 web/3 api/1", amid: answer(registry.NotRegistered(errDown)), more: "api/2",
			want: "closed",
		},
		"a word when to come back, in between": {
			reason: "an answer too", fail: "web/1 web/2 web/3 api/1", amid: answer(registry.RetryAfter(errDown, time.Second)),
			more: "api/2", want: "closed",
		},
		"a call that was not made, in between": {
			reason: "says nothing", fail: "web/1 web/2 web/3 api/1", amid: answer(Inconclusive(errDown)), more: "api/2", want: "open",
		},
		"a call that was cut off, in between": {
			reason: "the caller ended, and says nothing of the registry",
			fail:   "web/1 web/2 web/3 api/1", amid: answer(fmt.Errorf("calling: %w", context.Canceled)), more: "api/2", want: "open",
		},
		"time-outs": {
			reason: "no answer is none",
			fail:   "web/1 web/2 web/3 api/1", amid: answer(context.DeadlineExceeded), want: "open",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStreet(t, 8)
				if tc.before != nil {
					tc.before(s)
				}
				s.fails(strings.Fields(tc.fail)...)
				if tc.amid != nil {
					tc.amid(s)
				}
				s.fails(strings.Fields(tc.more)...)
				if got := s.gate.Status().Breaker; got != tc.want {
					t.Errorf("the breaker is %s, want %s\nwhy: %s", got, tc.want, tc.reason)
				}
			})
		})
	}
}

func TestAnOpenBreakerLetsOnlyProbesThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 8)
		down := time.Now()
		s.fails("web/1", "web/2", "web/3", "api/1", "api/2")
		s.expectWoken("nobody makes a call now")
		s.come("web/6", "web/7!", "cms/1")
		s.expectInside("no call is made")
		want := &Refusal{Outage: &Outage{Since: down, Err: errDown, Probe: down.Add(openFor)}}
		if got := s.last; !got.Outage.Since.Equal(want.Outage.Since) || !got.Outage.Probe.Equal(want.Outage.Probe) ||
			!errors.Is(got.Outage.Err, errDown) {
			t.Errorf("told %v, want %v", got.Outage, want.Outage)
		}

		s.wait(openFor + time.Second)
		s.expectWoken("one call, for a service that has not failed yet", "cms/1")
		if s.gate.Status().Breaker != "halfOpen" {
			t.Errorf("the breaker is %s while it is probed", s.gate.Status().Breaker)
		}
		s.come("web/6", "web/7!", "db/1!")
		s.expectInside("the one probe is kept for the one who was called")
		if got := s.last.Outage.Since; !got.Equal(down) {
			t.Errorf("the outage began at %s, want %s", got, down)
		}
		s.come("cms/1")
		s.come("web/7!")
		s.expectInside("one call at a time", "cms/1")
		s.leaves("cms/1", errDown)

		s.wait(openFor + time.Second)
		s.expectWoken("all have failed but one", "db/1!")
		s.comes("db/1!")
		s.leaves("db/1!", errDown)
		s.wait(openFor + time.Second)
		s.expectWoken("who is urgent, first", "web/7!")
		s.gate.EndVisit("web/7") // the pod is gone
		s.expectWoken("the probe goes on to the next", "db/1!")
		s.comes("db/1!")
		s.leaves("db/1!", nil)
		s.expectWoken("the registry is back: all go on, also whose own call failed meanwhile", "api/2", "web/6", "cms/1")
		for _, name := range []string{"api/2", "web/6", "cms/1"} {
			s.comes(name)
			s.leaves(name, nil)
		}
		s.expectEmpty()
	})
}

func TestAnOpenBreakerTakesTurnsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 4)
		s.come("web/1", "web/2", "web/3", "web/4", "web/5", "api/1")
		s.leaves("web/1", errDown)
		s.expectWoken("there is a slot", "web/3")
		s.leaves("web/2", errDown)
		s.expectWoken("there is a slot", "web/4")
		s.leaves("api/1", errDown)
		s.fails("api/2", "api/3")
		if got := s.gate.Status(); got.Breaker != "open" || got.InUse != 0 {
			t.Fatalf("got %+v, want an open breaker and nothing in use", got)
		}
		s.come("web/3")
		s.expectInside("its turn has passed")
		s.wait(openFor + time.Second)
		s.expectWoken("who lost a turn is before those who came later", "web/3")
		s.come("web/3")
		s.leaves("web/3", nil)
		s.expectWoken("the registry is back", "api/3", "web/4", "web/5")
	})
}

func TestWhoComesWhenNobodyWaitsMakesTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 8)
		s.fails("web/1", "web/2", "web/3", "api/1", "api/2")
		for _, id := range []string{"web/1", "web/2", "web/3", "api/1", "api/2"} {
			s.gate.EndVisit(id) // what they waited for is over
		}
		s.gate.EndVisit("api/2")
		s.wait(time.Minute)
		s.woken = nil
		if !s.comes("cms/1") || s.comes("cms/2") {
			t.Error("want the first who comes let through, and no other")
		}
		s.leaves("cms/1", nil)
		s.expectWoken("the registry is back", "cms/2")
	})
}

func TestAProbeThatSaysNothingIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 8)
		s.fails("web/1", "web/2", "web/3", "api/1", "api/2")
		s.come("cms/1", "db/1")
		s.wait(openFor + time.Second)
		s.expectWoken("it has not failed", "cms/1")
		s.comes("cms/1")
		s.leaves("cms/1", Inconclusive(errDown))
		s.expectWoken("the registry was not asked yet", "db/1")
	})
}

// TestNobodyIsForgotten has callers come, fail, give up and change their minds at random: the bounds hold at every step,
// and everybody has its turn in the end.
func TestNobodyIsForgotten(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { crowd(t, seed) })
		})
	}
}

func crowd(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, seed))
	s := newStreet(t, 2+random.IntN(10))
	waiting := map[string]bool{}
	visit := func(name string) {
		waiting[s.caller(name).ID] = !s.comes(name)
	}
	for range 400 {
		name := fmt.Sprintf("%c/%d", 'a'+random.IntN(4), random.IntN(8))
		if random.IntN(3) == 0 {
			name += "!"
		}
		id := s.caller(name).ID
		switch inside := s.inside[id] != nil; {
		case inside:
			s.leaves(name, []error{nil, errDown, errDown, Inconclusive(errDown)}[random.IntN(4)])
			waiting[id] = waiting[id] || s.gate.waiters[id] != nil
		case random.IntN(6) == 0:
			s.gate.EndVisit(id)
			s.gate.EndVisit(id)
			waiting[id] = false
		default:
			visit(name)
		}
		if random.IntN(20) == 0 {
			s.wait(openFor)
		}
		expectBounds(t, s)
	}
	for range 1000 { // now the registry answers, and those who are woken come
		for _, id := range slices.Collect(maps.Keys(s.inside)) {
			s.leaves(id, nil)
		}
		s.wait(openFor)
		woken := s.woken
		s.woken = nil
		for _, name := range woken {
			if s.inside[s.caller(name).ID] == nil && waiting[s.caller(name).ID] {
				visit(name)
			}
		}
		expectBounds(t, s)
	}
	for id, waits := range waiting {
		if waits {
			t.Errorf("%s still waits", id)
		}
	}
	s.expectEmpty()
}

func expectBounds(t *testing.T, s *street) {
	t.Helper()
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	g := s.gate
	if g.slots.total > g.slots.limit {
		t.Fatalf("%d slots of %d are taken", g.slots.total, g.slots.limit)
	}
	for service, n := range g.slots.byService {
		if n > g.slots.perService {
			t.Fatalf("%s has %d slots, want at most %d", service, n, g.slots.perService)
		}
	}
}
