package registryclient

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// working is a registry that works on so many calls at a time, and lets the others wait or refuses them.
type working struct {
	registry.Registry

	mu      sync.Mutex
	takes   int
	latency time.Duration
	refuses bool
	busy    int
	line    []chan struct{}

	// underWay are more than a quarter too many since, and were for longest. given came when that had been so for a second.
	underWay int
	since    time.Time
	longest  time.Duration
	given    int
}

func (w *working) Register(context.Context, registry.Instance) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(1)
	defer w.count(-1)
	switch {
	case w.busy < w.takes:
		w.busy++
	case w.refuses:
		return registry.RetryAfter(errDown, w.latency)
	default:
		turn := make(chan struct{})
		w.line = append(w.line, turn)
		w.sleep(func() { <-turn })
	}
	latency := w.latency
	w.sleep(func() { time.Sleep(latency) })
	if w.busy > w.takes || len(w.line) == 0 {
		w.busy--
		return nil
	}
	close(w.line[0])
	w.line = w.line[1:]
	return nil
}

func (w *working) sleep(until func()) {
	w.mu.Unlock()
	defer w.mu.Lock()
	until()
}

func (w *working) count(n int) {
	most := w.takes + w.takes/4
	if w.underWay > most {
		w.longest = max(w.longest, time.Since(w.since))
		if n > 0 && time.Since(w.since) > time.Second {
			w.given++
		}
	}
	if w.underWay += n; n > 0 && w.underWay == most+1 {
		w.since = time.Now()
	}
}

func (w *working) becomes(takes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes, w.since, w.longest, w.given = takes, time.Now(), 0, 0
}

// wave has each pod of so many services make one call, 10,000 of which come in a second, and returns how long it took.
func wave(t *testing.T, c *Client, pods, services int, urgent bool) time.Duration {
	var done sync.WaitGroup
	var reconcile func(pod int)
	reconcile = func(pod int) {
		by := Caller{ID: fmt.Sprint(pod), Urgent: urgent, Wake: func() { go reconcile(pod) }}
		err := c.Change(t.Context(), by, registering(fmt.Sprint(pod%services), pod+1))
		after, overloaded := registry.RetryAfterOf(err)
		switch {
		case err == nil:
			done.Done()
		case overloaded:
			time.AfterFunc(after, func() { reconcile(pod) })
		}
	}
	began := time.Now()
	done.Add(pods)
	for pod := range pods {
		go reconcile(pod)
		time.Sleep(100 * time.Microsecond)
	}
	done.Wait()
	defer time.Sleep(2 * time.Second)
	return time.Since(began)
}

// TestSlotsFollowTheRegistry has pods go out of the registry and come back, as in an update: those that go out are urgent.
func TestSlotsFollowTheRegistry(t *testing.T) {
	t.Parallel()
	const takes, free = 20, 1 << 20
	type row struct {
		latency        time.Duration
		pods, services int
		refuses        bool
	}
	bubble.Each(t, map[string]row{
		"5ms":                                {5 * time.Millisecond, 2000, 10, false},
		"5ms, one service":                   {5 * time.Millisecond, 2000, 1, false},
		"5ms, errors":                        {5 * time.Millisecond, 4000, 10, true},
		"100ms":                              {100 * time.Millisecond, 1000, 10, false},
		"100ms, one service":                 {100 * time.Millisecond, 1000, 1, false},
		"100ms, errors":                      {100 * time.Millisecond, 2000, 10, true},
		"half a second":                      {500 * time.Millisecond, 1000, 10, false},
		"half a second, one service":         {500 * time.Millisecond, 1000, 1, false},
		"half a second, errors":              {500 * time.Millisecond, 1000, 10, true},
		"half a second, one service, errors": {500 * time.Millisecond, 1000, 1, true},
	}, func(t *testing.T, tc row) {
		w := &working{takes: takes, latency: tc.latency, refuses: tc.refuses}
		c := New(w, Options{Timeout: time.Minute, MaxInFlight: 384})
		update := func() time.Duration {
			return wave(t, c, tc.pods, tc.services, true) + wave(t, c, tc.pods, tc.services, false)
		}
		expectTwenty := func(when string) {
			t.Helper()
			w.becomes(takes)
			got, could := 4*float64(tc.pods)/(update()+update()).Seconds(), takes/tc.latency.Seconds()
			if got < 0.9*could {
				t.Errorf("%s: %.0f calls in a second, want 0.9 of the %.0f that the registry can make", when, got, could)
			}
			if w.longest > time.Second {
				t.Errorf("%s: it had more than 25 calls for %s, want a second at most", when, w.longest)
			}
		}
		expectTwenty("at first")
		w.becomes(free)
		update()
		update()
		w.becomes(takes)
		update()
		if w.given > 0 {
			t.Errorf("%d calls were given to it a second after it began to take fewer", w.given)
		}
		expectTwenty("when it takes fewer")
	})
}

// TestSlotsOfASlowRegistry has a registry that takes all calls at once.
func TestSlotsOfASlowRegistry(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		latency []time.Duration // one update with each
		atLeast int
	}
	bubble.Each(t, map[string]row{
		"slow":            {"260 calls in a second need 35 slots", []time.Duration{100 * time.Millisecond}, 35},
		"very slow":       {"260 calls in half a second need 173 slots", []time.Duration{500 * time.Millisecond}, 173},
		"becomes slower":  {"it would not be faster with few", []time.Duration{100 * time.Millisecond, 500 * time.Millisecond}, 173},
		"becomes faster":  {"it takes as many", []time.Duration{500 * time.Millisecond, 100 * time.Millisecond}, 173},
		"fast":            {"more would be of no use", []time.Duration{5 * time.Millisecond}, firstSlots},
		"with each other": {"it is as before", []time.Duration{500 * time.Millisecond, 5 * time.Millisecond, 500 * time.Millisecond}, 173},
	}, func(t *testing.T, tc row) {
		w := &working{takes: 1 << 20}
		c := New(w, Options{Timeout: time.Minute, MaxInFlight: 384})
		for _, latency := range tc.latency {
			w.latency = latency
			wave(t, c, 300, 1, true)
			wave(t, c, 300, 1, false)
		}
		if got := c.Status().Slots; got < tc.atLeast {
			t.Errorf("got %d slots, want %d\nreason: %s", got, tc.atLeast, tc.reason)
		}
	})
}

// TestFirstStorm: 300 pods are five rounds of calls, of 18, 35, 70 and 140, which is one service's share of 20, 40, 80 and 160 slots, and of
// what is left.
func TestFirstStorm(t *testing.T) {
	t.Parallel()
	bubble.Each(t, map[string]int{"one service": 1, "ten services": 10}, func(t *testing.T, services int) {
		const latency = 500 * time.Millisecond
		w := &working{takes: 1 << 20, latency: latency}
		c := New(w, Options{Timeout: time.Minute, MaxInFlight: 384})
		if took := wave(t, c, 300, services, true); took > 5*latency+latency/10 {
			t.Errorf("it took %s, want five rounds of %s", took, latency)
		}
	})
}

func TestFixedSlots(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		made   registry.Registry
		want   int
	}
	b := newBatches(10, time.Second)
	bubble.Each(t, map[string]row{
		"batches":    {"calls wait for one another", batching{direct{b}, b}, fixedSlots},
		"pods":       {"each call is to another server", podCaller{}, fixedSlots},
		"a registry": {"it has to show how many it takes", &working{}, firstSlots},
	}, func(t *testing.T, tc row) {
		c := New(tc.made, Options{Timeout: time.Minute, MaxInFlight: 384})
		expect.Equal(t, tc.want, c.Status().Slots, "slots: %s", tc.reason)
		c.SetMaxInFlight(7)
		expect.Equal(t, 7, c.Status().Slots, "slots, the most that is configured")
	})
}
