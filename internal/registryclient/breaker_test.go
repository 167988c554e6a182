package registryclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestBreakerOpens(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		fail   string
		amid   []error
		more   string
		want   string
	}
	bubble.Each(t, map[string]row{
		"five callers": {reason: "the registry is down", fail: "web/1 web/2 web/3 api/1 api/2", want: "open"},
		"one service":  {reason: "the registry is down, as far as is known", fail: "web/1 web/2 web/3 web/4 web/5", want: "open"},
		"one caller less": {
			reason: "the back-off of each is enough", fail: "web/1 web/2 web/3 api/1", want: "closed",
		},
		"few callers, again and again": {
			reason: "the back-off of each is enough", fail: "web/1 web/2 web/1 api/1 web/1 web/2 api/1", want: "closed",
		},
		"an answer in between": {
			reason: "the registry can be reached", fail: "web/1 web/2 web/3 api/1", amid: []error{nil}, more: "api/2", want: "closed",
		},
		"a refusal in between": {
			reason: "an answer too", fail: "web/1 web/2 web/3 api/1", amid: []error{registry.Terminal(errDown)}, more: "api/2",
			want: "closed",
		},
		"an entry that is not there, in between": {
			reason: "an answer too", fail: "web/1 web/2 web/3 api/1", amid: []error{registry.NotRegistered(errDown)}, more: "api/2",
			want: "closed",
		},
		"an entry of another, in between": {
			reason: "an answer too", fail: "web/1 web/2 web/3 api/1", amid: []error{registry.ForeignEntry(errDown)}, more: "api/2",
			want: "closed",
		},
		"a word when to come back, in between": {
			reason: "an answer too", fail: "web/1 web/2 web/3 api/1", amid: []error{registry.RetryAfter(errDown, time.Second)},
			more: "api/2", want: "closed",
		},
		"a call that was cut off, in between": {
			reason: "it says nothing of the registry",
			fail:   "web/1 web/2 web/3 api/1", amid: []error{fmt.Errorf("calling: %w", context.Canceled)}, more: "api/2", want: "open",
		},
		"a time-out": {
			reason: "no answer is none", fail: "web/1 web/2 web/3 api/1", amid: []error{context.DeadlineExceeded}, want: "open",
		},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, 8)
		w.fail(fields(tc.fail)...)
		for _, err := range tc.amid {
			w.come("cms/1")
			w.answer(err, "cms/1")
		}
		w.fail(fields(tc.more)...)
		expect.Equal(t, tc.want, w.Status().Breaker, "the breaker: %s", tc.reason)
	})
}

func TestBreakerOpensByReads(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		of     string
		err    error
		want   string
	}
	bubble.Each(t, map[string]row{
		"not yet": {
			reason: "the registry has answered", of: "a/1 b/1 c/1 d/1 e/1", err: errors.New("the check has not passed"), want: "closed",
		},
		"no answer about five services": {
			reason: "the registry is down", of: "a/1 b/1 c/1 d/1 e/1", err: context.DeadlineExceeded, want: "open",
		},
		"no answer about one": {
			reason: "it may be large, and others are read and written in time",
			of:     "web/1 web/2 web/3 web/4 web/5 web/6 web/7 a/1 b/1 c/1", err: context.DeadlineExceeded, want: "closed",
		},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, 8)
		for _, name := range fields(tc.of) {
			by, change := w.caller(name)
			go func() { _ = w.Probe(t.Context(), by, change.Instance) }()
			w.sleep(0)
			if w.Status().Breaker == "closed" {
				w.answer(tc.err, name)
			}
		}
		expect.Equal(t, tc.want, w.Status().Breaker, "the breaker: %s", tc.reason)
	})
}

// TestBreakerStaysClosedWherePodsAreCalled: each pod is a server of its own, and those of a node that is cut off must not stop the others.
func TestBreakerStaysClosedWherePodsAreCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.Client = New(podCaller{apps{holding: &holding{w}}}, Options{Timeout: testTimeout, MaxInFlight: 8})
		w.fail(fields("web/1 web/2 web/3 web/4 web/5 web/6")...)
		expect.Equal(t, "closed", w.Status().Breaker, "the breaker")
	})
}

type podCaller struct{ apps }

func (podCaller) Traits() registry.Traits { return registry.Traits{CallsPods: true} }

func TestBreakerTries(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"one call at a time": func(t *testing.T) {
			w := newWorld(t, 8)
			down := time.Now()
			w.fail("web/1", "web/2", "web/3", "api/1", "api/2")
			w.come("web/6", "cms/1!")
			w.expectUnderWay("no call is made")
			refused := w.refused["cms/1"]
			want := fmt.Sprintf("no call is made: the circuit breaker is open since %s, tries one call at %s, and then every 5 s; the last "+
				"failure: connection refused", down.Format(time.RFC3339), down.Add(openFor).Format(time.RFC3339))
			if Classify(refused) != Outage || refused.Error() != want || !errors.Is(refused, errDown) {
				t.Errorf("got %v (%s), want %s", refused, Classify(refused), want)
			}
			w.sleep(openFor - recheck)
			w.expectWoken("the registry is left alone")
			w.sleep(2 * recheck)
			if w.woken == nil {
				t.Fatal("none was woken to try")
			}
			w.come("db/1", "db/2", "cms/1!")
			w.expectUnderWay("one call at a time, of the first that comes", "db/1")
			w.answer(errDown, "db/1")
			w.expectStatus("the outage goes on", Status{Slots: 8, Queued: w.Status().Queued, Breaker: "open"})
			w.sleep(openFor + recheck)
			w.come("db/3")
			w.answer(registry.Terminal(errDown), "db/3")
			w.sleep(3 * recheck)
			woken := w.woken
			for _, name := range []string{"web/6", "db/1", "db/2", "cms/1!", "api/2"} {
				if !slices.Contains(woken, name) {
					t.Errorf("woken were %q, want %s too: the registry answers, whatever it says", woken, name)
				}
			}
			w.expectEmpty()
		},
		// A service with a trouble of its own opens the breaker for all. The urgent calls of it must not be all that is tried.
		"calls that are not urgent too": func(t *testing.T) {
			w := newWorld(t, 8)
			w.fail("web/1!", "web/2!", "web/3!", "web/4!", "web/5!")
			w.come("api/1")
			began := time.Now()
			for w.Status().Breaker != "closed" {
				w.sleep(recheck)
				woken := w.woken
				w.woken = nil
				for _, name := range woken {
					w.come(name)
					if by, _ := w.caller(name); len(w.underWay()) > 0 {
						w.answer(map[bool]error{true: errDown}[by.Urgent], name)
					}
				}
				if time.Since(began) > time.Minute {
					t.Fatal("only calls of the service that fails are tried")
				}
			}
			if took := time.Since(began); took > 2*(openFor+2*recheck) {
				t.Errorf("the other service waited for %s, want at most two tries", took)
			}
		},
		"again where nothing was learned": func(t *testing.T) {
			w := newWorld(t, 8)
			w.fail("web/1", "web/2", "web/3", "api/1", "api/2")
			w.sleep(openFor + recheck)
			w.come("cms/1")
			w.answer(context.Canceled, "cms/1")
			w.come("db/1")
			w.expectUnderWay("the registry was not heard yet", "db/1")
			w.answer(nil, "db/1")
			w.expectStatus("", Status{Slots: 8, Queued: w.Status().Queued, Breaker: "closed"})
		},
		"not again and again where an instance is not served yet": func(t *testing.T) {
			w := newWorld(t, 8)
			w.fail("web/1", "web/2", "web/3", "api/1", "api/2")
			w.limit.close() // those pods are gone
			w.sleep(openFor + recheck)
			by, change := w.caller("cms/1")
			probed := inBackground(func() error { return w.Probe(t.Context(), by, change.Instance) })
			w.answer(errors.New("the check has not passed"), "cms/1")
			<-probed
			w.expectWoken("its own back-off brings it back: a wake would have the registry asked without a pause")
			w.expectStatus("the next one tries", Status{Slots: 8, Breaker: "halfOpen"})
			w.fail("db/1")
			w.expectStatus("", Status{Slots: 8, Queued: 1, Breaker: "open"})
			w.expectWoken("the registry is left alone")
		},
	})
}
