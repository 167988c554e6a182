package registryclient

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// slots are those of a registry that answers each call in 10 ms, unless the test says something else.
type slots struct {
	*adaptive

	t   *testing.T
	now time.Time
}

const answers = 10 * time.Millisecond

// slotsAt has callers wait until there are so many slots, and none of them is a try.
func slotsAt(t *testing.T, most, want int) *slots {
	t.Helper()
	s := &slots{newAdaptive(most), t, time.Unix(1_800_000_000, 0)}
	for range 100 {
		if s.slots == want && s.kept == 0 && s.usual.known() {
			return s
		}
		s.Calls(unreserved(s.slots), nil, s.slots < want)
	}
	t.Fatalf("there are %d slots after a hundred rounds, want %d", s.slots, want)
	return nil
}

// Calls makes so many at a time, and has all answered.
func (s *slots) Calls(n int, err error, waiting bool) {
	s.Round(slices.Repeat([]error{err}, n), waiting)
}

// Round makes as many calls as there are answers, at a time.
func (s *slots) Round(all []error, waiting bool) {
	trips := make([]*trip, len(all))
	for i := range trips {
		trips[i] = s.begin(s.now, 1)
	}
	s.now = s.now.Add(answers)
	for i, one := range trips {
		s.end(one, s.now, all[i], waiting)
	}
}

// Try has callers wait until it tries more slots than it keeps.
func (s *slots) Try() *slots {
	s.t.Helper()
	for range 100 {
		if s.kept > 0 {
			return s
		}
		s.Calls(unreserved(s.slots), nil, true)
	}
	s.t.Fatalf("it tries no more than %d slots, and callers wait", s.slots)
	return nil
}

func (s *slots) ExpectOpen(reason string, want int) {
	s.t.Helper()
	expect.Equal(s.t, want, s.open(), "slots: %s", reason)
}

// TestSlotsAfterWhatARegistrySays: what is said of one round of calls, and what follows.
func TestSlotsAfterWhatARegistrySays(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(t *testing.T){
		"one refusal": func(t *testing.T) {
			s := slotsAt(t, 384, 40)
			s.Calls(1, registry.RetryAfter(errDown, time.Second), true)
			s.ExpectOpen("a registry that says that it is full need not say so of each call", firstSlots)
		},
		"failures": func(t *testing.T) {
			s := slotsAt(t, 384, 40)
			s.Calls(10, errDown, true)
			s.ExpectOpen("a registry that is overloaded may fail rather than be late", firstSlots)
		},
		"few failures": func(t *testing.T) {
			s := slotsAt(t, 384, 40)
			s.Calls(9, errDown, false)
			s.ExpectOpen("less than a third fail, which may have other causes", 40)
		},
		"an outage during a try": func(t *testing.T) {
			s := slotsAt(t, 384, 20).Try()
			s.Calls(1, &outcomeError{outcome: Outage, err: errors.New("open")}, true)
			s.ExpectOpen("a call that was not made shows nothing", 20)
		},
		"a try for which few came": func(t *testing.T) {
			s := slotsAt(t, 384, 20).Try()
			s.Calls(3, nil, true)
			s.now = s.now.Add(time.Second)
			s.look(s.now, false)
			s.ExpectOpen("three calls show nothing of forty", 20)
		},
		"a try that fails": func(t *testing.T) {
			s := slotsAt(t, 384, 20).Try()
			s.Round(slices.Concat(slices.Repeat([]error{errDown}, 7), make([]error, 23)), true)
			s.ExpectOpen("forty were too many", 20)
			for verdict := range restFor {
				if s.kept > 0 {
					t.Errorf("it tries again after %d rounds, want %d: each try costs calls", verdict, restFor)
				}
				s.Calls(unreserved(20), nil, true)
			}
			s.Try()
			if s.slots >= 40 {
				t.Errorf("it tries %d slots next, and 40 were too many", s.slots)
			}
		},
		"a try that fails as a whole": func(t *testing.T) {
			s := slotsAt(t, 384, 20).Try()
			s.Round(slices.Repeat([]error{errDown}, 30), true)
			s.ExpectOpen("forty were too many", 20)
			for range restFor {
				s.Calls(unreserved(20), nil, true)
			}
			s.Try()
			if s.slots >= 40 {
				t.Errorf("it tries %d slots next: what else failed of the forty says nothing of the twenty", s.slots)
			}
		},
		"a smaller maximum during a try": func(t *testing.T) {
			s := slotsAt(t, 384, 20).Try()
			s.resize(10)
			s.ExpectOpen("the most that is configured", 10)
			s.Calls(1, &outcomeError{outcome: Outage, err: errors.New("open")}, true)
			s.ExpectOpen("also when the try has ended", 10)
		},
		"a maximum that is raised again": func(t *testing.T) {
			s := slotsAt(t, 384, 20)
			s.resize(7)
			s.ExpectOpen("the most that is configured", 7)
			s.resize(384)
			s.ExpectOpen("those at first, and not seven for ever", firstSlots)
		},
		"nobody waits": func(t *testing.T) {
			s := slotsAt(t, 384, 20)
			for range 10 {
				s.Calls(unreserved(20), nil, false)
			}
			s.ExpectOpen("more would be of no use", 20)
		},
	}, func(t *testing.T, play func(t *testing.T)) {
		play(t)
	})
}
