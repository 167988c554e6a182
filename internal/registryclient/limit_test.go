package registryclient

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
)

func TestLimit(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		slots  int
		// come are those who ask, underWay whose calls are made, and woken who is woken when the call of leave ends.
		come, underWay, leave, woken string
	}
	bubble.Each(t, map[string]row{
		"seven eighths for one service": {"a service that hangs must leave the rest to the others", 8,
			"web/1! web/2! web/3! web/4! web/5! web/6! web/7! web/8! api/1!", "api/1 web/1 web/2 web/3 web/4 web/5 web/6 web/7", "", ""},
		"half for one service while another waits": {"the other has its turn until it has as many", 8,
			"web/1! web/2! web/3! web/4! web/5! web/6! web/7! web/8! api/1! api/2!", "api/1 web/1 web/2 web/3 web/4 web/5 web/6 web/7",
			"web/1", "api/2!"},
		"a quarter only for what a rollout waits for": {"services that hang must not hold up a rollout", 8,
			"a/1 a/2 a/3 b/1 b/2 b/3 c/1 c/2! d/1! d/2!", "a/1 a/2 a/3 b/1 b/2 b/3 c/2 d/1", "", ""},
		"urgent calls take only free slots from the others": {"the others' share is of what they have themselves", 8,
			"a/1! a/2! b/1! b/2! c/1 c/2 c/3 c/4", "a/1 a/2 b/1 b/2 c/1 c/2 c/3 c/4", "", ""},
		"two": {"the least that leaves something to another service", 2, "web/1 web/2 api/1 api/2!", "api/1 web/1", "", ""},
		"one": {"a half of one is one", 1, "web/1 api/1!", "web/1", "", ""},
		"one change of an endpoint at a time": {"a registry that looks before it deletes may hit the next pod's entry", 8,
			"web/1 web/2@1 web/3", "web/1 web/3", "web/1", "web/2@1"},
		"an endpoint that is taken holds up no other": {"the next in the line has another", 4,
			"a/1 b/1 b/2@1 b/3 c/1", "a/1 b/1 b/3", "a/1", "c/1"},
		"first come, first served": {"the callers of a service wait in one line", 2,
			"web/1 web/2 web/3", "web/1", "web/1", "web/2"},
		"urgent first":                          {"a rollout waits for it", 2, "web/1 web/2 web/3!", "web/1", "web/1", "web/3!"},
		"calls that yield go last":              {"clients are given the instance already", 4, "a/1 b/1 c/1 d/1? d/2? d/3", "a/1 b/1 c/1", "a/1", "d/3"},
		"calls that yield go if no other waits": {"no other call needs the slot", 4, "a/1 b/1 c/1 d/1? d/2?", "a/1 b/1 c/1", "a/1", "d/1?"},
		"calls that yield take nothing from their service": {"a pod of it may have to leave", 8,
			"a/1? a/2? b/1? b/2? a/3? a/4 a/5! a/6!", "a/1 a/2 a/3 a/4 a/5 a/6 b/1 b/2", "", ""},
		"a caller that no longer yields does not wait behind those that do": {"its entry was lost meanwhile", 4,
			"a/1 b/1 c/1 d/1? d/2? d/2", "a/1 b/1 c/1", "a/1", "d/2"},
		"services in turns": {"a service with many callers must not be served before one with a single caller", 4,
			"a/1 b/1 c/1 a/2 a/3 a/4 b/2", "a/1 b/1 c/1", "b/1", "b/2"},
		"a service that has its half lets others pass": {"its callers wait for each other and hold up no other service", 4,
			"web/1! web/2! api/1! api/2! web/3! db/1!", "api/1 api/2 web/1 web/2", "api/1", "db/1!"},
		"a caller that comes again keeps its place": {"an event about a pod must not put it behind the others", 2,
			"web/1 web/2 web/3 web/2", "web/1", "web/1", "web/2"},
		"a caller that becomes urgent does not wait behind those that are not": {"a pod that is queued to be registered may have to go",
			2, "web/1 web/2 web/3 web/3!", "web/1", "web/1", "web/3!"},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, tc.slots)
		w.come(fields(tc.come)...)
		underWay, ids := fields(tc.underWay), map[string]bool{}
		for _, name := range fields(tc.come) {
			by, _ := w.caller(name)
			ids[by.ID] = true
		}
		w.expectUnderWay(tc.reason, underWay...)
		w.expectStatus(tc.reason, Status{
			Slots: tc.slots, InUse: len(underWay), Queued: len(ids) - len(underWay), Breaker: "closed",
		})
		if tc.leave != "" {
			w.answer(nil, tc.leave)
			w.expectWoken(tc.reason, tc.woken)
		}
		w.answer(nil, w.underWay()...)
		w.expectEmpty()
	})
}

func TestLimitQueue(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"keeps no slot for a caller": func(t *testing.T) {
			w := newWorld(t, 2)
			w.come("web/1", "web/2", "web/3")
			w.answer(nil, "web/1")
			w.expectWoken("a slot is free", "web/2")
			w.come("web/4", "web/2")
			w.expectUnderWay("web/4 took the slot", "web/4")
			w.answer(nil, "web/4")
			w.expectWoken("it has waited longest", "web/3")
			w.come("web/3")
			w.answer(nil, "web/3")
			w.expectWoken("its place was taken again", "web/2")
			w.expectEmpty()
		},
		"stalls none for a caller that does not come": func(t *testing.T) {
			w := newWorld(t, 4)
			w.come("web/1", "web/2", "web/3", "web/4", "web/5", "web/6", "web/7", "web/8")
			w.answer(nil, "web/1", "web/2")
			w.expectWoken("two slots are free, and these pods need no call any more", "web/4", "web/5")
			w.sleep(recheck)
			w.expectWoken("the two slots are free still", "web/6", "web/7")
			w.come("web/6")
			w.sleep(recheck)
			w.expectWoken("one is taken now", "web/8")
			w.answer(nil, "web/3", "web/6")
			w.expectEmpty()
		},
		"changes in place": func(t *testing.T) {
			w := newWorld(t, 4)
			w.come("web/1", "api/1", "web/2", "web/3", "web/4", "db/1")
			w.expectUnderWay("a quarter is for what a rollout waits for", "api/1", "web/1", "web/2")
			w.SetMaxInFlight(8)
			w.expectWoken("there are more: the service with the fewest calls first", "db/1", "web/3", "web/4")
			w.come("web/3", "db/1", "web/4")
			w.SetMaxInFlight(4)
			w.come("cms/1!")
			w.expectUnderWay("calls that are under way go on", "api/1", "db/1", "web/1", "web/2", "web/3", "web/4")
			w.answer(nil, "web/1", "web/2")
			w.expectWoken("four are still under way")
			w.answer(nil, "api/1")
			w.expectWoken("one slot of the four is free", "cms/1!")
			w.answer(nil, w.underWay()...)
			w.expectEmpty()
		},
		"keeps the place of a caller's call for another port": func(t *testing.T) {
			keepsPlace(t, func(own *Client) *Client { return own }, 81)
		},
		"keeps the place of a caller's call for its application's entry": func(t *testing.T) {
			keepsPlace(t, (*Client).AppEntries, 80)
		},
		"queues a caller for each service": func(t *testing.T) {
			w := newWorld(t, 4)
			w.come("web/1!", "web/2!", "api/1!", "api/2!")
			for _, service := range []string{"web", "api"} {
				by := Caller{ID: "pod", Urgent: true, Wake: func() { w.woken = append(w.woken, service) }}
				change := registering(service, 1)
				change.Instance.Namespace = service // as that of the others
				err := w.Change(t.Context(), by, change)
				if Classify(err) != Queued {
					t.Fatalf("got %v, want %s: %s has its half", err, Queued, service)
				}
			}
			w.answer(nil, "web/1")
			w.expectWoken("its place for web", "web")
			w.answer(nil, "api/1")
			w.expectWoken("its place for api", "api")
			w.answer(nil, w.underWay()...)
			w.expectEmpty()
		},
	})
}

// keepsPlace has a pod wait with a call of one client for port 80, and find a slot with a call of its own for a port.
func keepsPlace(t *testing.T, of func(own *Client) *Client, port int) {
	w := newWorld(t, 2)
	w.Client = New(apps{holding: &holding{w}}, Options{Timeout: testTimeout, MaxInFlight: 2})
	ask := func(c *Client, port int) <-chan error {
		by := Caller{ID: "pod", Wake: func() { w.woken = append(w.woken, "pod") }}
		change := registering("web", port)
		change.Instance.UID, change.Instance.Namespace = "pod", "web"
		return inBackground(func() error { return c.Change(t.Context(), by, change) })
	}
	w.come("web/1", "web/2")
	if err := <-ask(of(w.Client), 80); Classify(err) != Queued {
		t.Fatalf("got %v, want %s: web has its half", err, Queued)
	}
	w.answer(nil, "web/1")
	w.expectWoken("it has waited longest, and does not come", "web/2")
	second := ask(w.Client, port)
	w.answer(nil, "pod")
	if err := <-second; err != nil {
		t.Fatalf("got %v: the slot was free", err)
	}
	w.expectWoken("its first call is still to be made", "pod")
	w.expectEmpty()
}

// TestLimitForgetsNoCaller has callers come, fail, give up and change their minds at random: the bounds hold at every step, and
// each has its call in the end.
func TestLimitForgetsNoCaller(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { crowd(t, seed) })
		})
	}
}

func crowd(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t, 2+random.IntN(10))
	verdicts := []error{nil, nil, errDown, registry.Terminal(errDown)}
	wants := map[string]bool{}
	ask := func(name string) {
		by, _ := w.caller(name)
		w.come(name)
		w.mu.Lock()
		defer w.mu.Unlock()
		wants[by.ID] = w.held[by.ID] == nil
	}
	for range 300 {
		name := fmt.Sprintf("%c/%d", 'a'+random.IntN(4), random.IntN(8))
		if random.IntN(3) == 0 {
			name += "!"
		}
		by, _ := w.caller(name)
		w.mu.Lock()
		underWay := w.held[by.ID] != nil
		w.mu.Unlock()
		switch {
		case underWay:
			w.answer(verdicts[random.IntN(len(verdicts))], name)
		case random.IntN(6) == 0:
			wants[by.ID] = false // and it does not say so
		default:
			ask(name)
		}
		if random.IntN(20) == 0 {
			w.sleep(openFor)
		}
		expectBounds(w)
	}
	for range 1000 { // now the registry answers, and those that are woken come where they still want a call
		w.answer(nil, w.underWay()...)
		w.sleep(recheck)
		w.limit.mu.Lock()
		woken := w.woken
		w.woken = nil
		w.limit.mu.Unlock()
		for _, name := range woken {
			if by, _ := w.caller(name); wants[by.ID] {
				ask(name)
			}
		}
		expectBounds(w)
		synctest.Wait()
	}
	for id, waits := range wants {
		if waits {
			t.Errorf("%s still waits", id)
		}
	}
	w.expectEmpty()
}

func expectBounds(w *world) {
	w.Helper()
	l := w.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.adaptive.most // calls that were under way when there were more slots go on
	if l.taken > most || l.others > most-most/4 {
		w.Fatalf("%d slots of %d are taken, %d of them by calls that are not urgent", l.taken, most, l.others)
	}
	for service, n := range l.byService {
		if n > most-max(1, most/4) {
			w.Fatalf("%v has %d slots of %d", service, n, most)
		}
	}
}
