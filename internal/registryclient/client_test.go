package registryclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/series"
)

const callTimeout = 5 * time.Second

// capable has every capability but batches. It notes the calls that it gets, and answers by answer where there is one.
type capable struct {
	got     []string
	answer  func(ctx context.Context) error
	eternal bool
	closed  atomic.Bool
}

func (c *capable) note(ctx context.Context, operation string) error {
	c.got = append(c.got, operation)
	if c.answer == nil {
		return nil
	}
	return c.answer(ctx)
}

func (c *capable) Register(ctx context.Context, _ registry.Instance) error {
	return c.note(ctx, "register")
}
func (c *capable) FailOver(ctx context.Context, _ registry.Instance) error {
	return c.note(ctx, "takeOut")
}
func (c *capable) Deregister(ctx context.Context, _ registry.Instance) error {
	return c.note(ctx, "deregister")
}
func (c *capable) List(ctx context.Context, _ string) ([]registry.Entry, error) {
	return []registry.Entry{{State: registry.InService}}, c.note(ctx, list)
}
func (c *capable) Get(ctx context.Context, _ registry.Instance) (registry.State, error) {
	return registry.OutOfService, c.note(ctx, get)
}
func (c *capable) Probe(ctx context.Context, _ registry.Instance) error { return c.note(ctx, probe) }
func (c *capable) Heartbeat(ctx context.Context, _ registry.Instance) error {
	return c.note(ctx, heartbeat)
}
func (c *capable) Traits() registry.Traits {
	traits := registry.Traits{Staleness: 30 * time.Second, HeartbeatInterval: time.Second}
	if c.eternal {
		traits.HeartbeatInterval = 0
	}
	return traits
}
func (c *capable) Close() error { c.closed.Store(true); return nil }

// plain has no capability.
type plain struct{ registry.Registry }

// fakeFence says what a test wants, and remembers what it was asked.
type fakeFence struct {
	refuses error

	mu    sync.Mutex
	takes time.Duration
	lands time.Time
}

func (f *fakeFence) Permit(takes time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes = takes
	return f.refuses
}

func (f *fakeFence) MayLand(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lands = until
}

func made(inner registry.Registry, change ...func(*Options)) *Client {
	o := Options{Name: "old", Driver: "fake", Timeout: callTimeout, MaxInFlight: 8}
	for _, c := range change {
		c(&o)
	}
	return New(inner, o)
}

// operations are all calls of a client, by their names in the metrics.
func operations(c *Client) map[string]func(context.Context) error {
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80}
	changes := func(state registry.State) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.Change(ctx, Caller{}, registry.Change{Instance: in, State: state})
		}
	}
	return map[string]func(context.Context) error{
		"register": changes(registry.InService), "takeOut": changes(registry.OutOfService), "deregister": changes(registry.Absent),
		probe:     func(ctx context.Context) error { return c.Probe(ctx, Caller{}, in) },
		heartbeat: func(ctx context.Context) error { return c.Heartbeat(ctx, in) },
		get: func(ctx context.Context) error {
			state, err := c.Get(ctx, Caller{}, in)
			if (err == nil) != (state == registry.OutOfService) {
				return fmt.Errorf("got %q with %w, want what the driver said unless it failed", state, err)
			}
			return err
		},
		list: func(ctx context.Context) error {
			entries, err := c.List(ctx, "prod")
			if (err == nil) != (len(entries) == 1) {
				return fmt.Errorf("got %v with %w, want what the driver said unless it failed", entries, err)
			}
			return err
		},
	}
}

func reads(operation string) bool { return operation == list || operation == get || operation == probe }

func TestClientMakesEachCallOnce(t *testing.T) {
	t.Parallel()
	inner := &capable{}
	for operation, ask := range operations(made(inner)) {
		inner.got = nil
		if err := ask(t.Context()); err != nil || !slices.Equal(inner.got, []string{operation}) {
			t.Errorf("%s made the calls %q (%v), want that one", operation, inner.got, err)
		}
	}
	if err := made(inner).Change(t.Context(), Caller{}, registry.Change{State: "asleep"}); Classify(err) != Refused {
		t.Errorf("got %v for a state that no call makes, want it refused", err)
	}
}

func TestClientKnowsTheCapabilitiesOfTheDriver(t *testing.T) {
	t.Parallel()
	type capabilities struct {
		Lists, Gets, Probes, Expires bool
		Interval, Staleness          time.Duration
	}
	dry := func(o *Options) { o.DryRun = func(Subject) {} }
	for name, tc := range map[string]struct {
		reason string
		client *Client
		want   capabilities
	}{
		"none": {"what a driver lacks is not called", made(plain{}), capabilities{}},
		"all":  {"each is found", made(&capable{}), capabilities{true, true, true, true, time.Second, 30 * time.Second}},
		"no interval": {
			"a registry that is not configured to lease needs no heartbeats", made(&capable{eternal: true}),
			capabilities{true, true, true, false, 0, 30 * time.Second},
		},
		"nothing to probe": {
			"the driver has learnt that there is nothing to ask", made(probing{&capable{}, false}),
			capabilities{true, true, false, true, time.Second, 30 * time.Second},
		},
		"a probe that was found": {
			"the driver has learnt that there is one", made(probing{&capable{}, true}),
			capabilities{true, true, true, true, time.Second, 30 * time.Second},
		},
		"a dry run": {
			"it renews nothing, and entries expire all the same", made(&capable{}, dry),
			capabilities{true, true, true, true, 0, 30 * time.Second},
		},
	} {
		c := tc.client
		got := capabilities{c.Lists(), c.Gets(), c.Probes(), c.Expires(), c.HeartbeatInterval(), c.Staleness()}
		expect.Equal(t, tc.want, got, "%s: %s", name, tc.reason)
	}
}

// probing is a driver that knows whether there is a probe.
type probing struct {
	*capable

	is bool
}

func (p probing) Probes() bool { return p.is }

func TestDryRunChangesNothingAndReads(t *testing.T) {
	t.Parallel()
	inner := &capable{}
	var told []string
	c := made(inner, func(o *Options) {
		o.DryRun = func(of Subject) { told = append(told, of.Operation+" "+of.Instance.Service) }
	})
	for operation, ask := range operations(c) {
		inner.got, told = nil, nil
		err := ask(t.Context())
		switch {
		case reads(operation):
			if err != nil || len(told) > 0 || !slices.Equal(inner.got, []string{operation}) {
				t.Errorf("%s: %v, calls %q, told %q; want the read and nothing told", operation, err, inner.got, told)
			}
		case Classify(err) != DryRun || !errors.Is(err, ErrDryRun) || len(inner.got) > 0 || !slices.Equal(told, []string{operation + " web"}):
			t.Errorf("%s: %v, calls %q, told %q; want it told and not made", operation, err, inner.got, told)
		}
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	type row struct {
		reason string
		err    error
		want   Outcome
		lands  bool
	}
	expect.Each(t, map[string]row{
		"acknowledged": {"nil is an acknowledgement", nil, Acknowledged, false},
		"unknown":      {"an error of no class may pass", failed, Retryable, false},
		"later":        {"a time to come back makes it no other class", registry.RetryAfter(failed, time.Hour), Retryable, false},
		"cancelled":    {"a call that was cut off is no time-out", context.Canceled, Retryable, false},
		"terminal":     {"the class survives wrapping", fmt.Errorf("calling: %w", registry.Terminal(failed)), Refused, false},
		"foreign":      {"an entry of another writer", registry.ForeignEntry(failed), Foreign, false},
		"lost":         {"there was no such entry", registry.NotRegistered(failed), NotRegistered, false},
		"deadline":     {"its time was up", fmt.Errorf("calling: %w", context.DeadlineExceeded), TimedOut, true},
		"network":      {"a connection that timed out may have brought the request", &netTimeoutError{}, Retryable, true},
		"gateway":      {"the registry may still be at it, whatever the class", registry.RetryAfter(&netTimeoutError{}, 0), Retryable, true},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			fence, gathered := &fakeFence{}, prometheus.NewRegistry()
			m := metrics.NewRegistryMetrics(gathered)
			inner := &capable{answer: func(context.Context) error { return tc.err }}
			c := made(inner, func(o *Options) { o.Fence, o.Metrics = fence, m })
			for operation, ask := range operations(c) {
				fence.lands = time.Time{}
				got := ask(t.Context())
				if Classify(got) != tc.want || !errors.Is(got, tc.err) || !Classify(got).Asked() {
					t.Errorf("%s: got %v (%s), want %s\nreason: %s", operation, got, Classify(got), tc.want, tc.reason)
				}
				until, lands := MayLandUntil(got)
				if MayLand(got) != lands {
					t.Errorf("%s: MayLand says %t of what may land until %s", operation, !lands, until)
				}
				want := tc.lands && !reads(operation)
				if lands != want || want && time.Until(until) != 2*callTimeout || !fence.lands.Equal(until) {
					t.Errorf("%s: it may land until %s (%t), and the fence knows %s; want it known: %t", operation, until, lands,
						fence.lands, want)
				}
			}
			if got, want := observed(t, gathered), map[string]int{string(tc.want): 7}; !cmp.Equal(got, want) {
				t.Errorf("the metrics count %v, want %v", got, want)
			}
		})
	})
}

// netTimeoutError is a time-out that is not the context's.
type netTimeoutError struct{}

func (*netTimeoutError) Error() string { return "gateway timeout" }
func (*netTimeoutError) Timeout() bool { return true }

// observed counts the calls that are in the metrics by their outcome.
func observed(t *testing.T, g prometheus.Gatherer) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, line := range series.Of(t, g) {
		if _, rest, found := strings.Cut(line, `outcome="`); found {
			outcome, _, _ := strings.Cut(rest, `"`)
			got[outcome]++
		}
	}
	return got
}

func TestFenceRefusesWhatIsNotPermitted(t *testing.T) {
	t.Parallel()
	inner, gathered := &capable{}, prometheus.NewRegistry()
	m := metrics.NewRegistryMetrics(gathered)
	fence := &fakeFence{refuses: errors.New("the lease was not renewed in time")}
	c := made(inner, func(o *Options) { o.Fence, o.Metrics = fence, m })
	for range 3 { // more than it takes to open the breaker, if it learned of them
		for operation, ask := range operations(c) {
			err := ask(t.Context())
			if Classify(err) != Fenced || Classify(err).Asked() || !errors.Is(err, fence.refuses) {
				t.Errorf("%s: got %v (%s), want it fenced", operation, err, Classify(err))
			}
			want := 2 * callTimeout
			if reads(operation) {
				want = callTimeout
			}
			if fence.takes != want {
				t.Errorf("%s takes up to %s by what the fence was asked, want %s", operation, fence.takes, want)
			}
		}
	}
	if len(inner.got) > 0 || len(observed(t, gathered)) > 0 || c.Status() != (Status{Slots: 8, Breaker: "closed"}) {
		t.Errorf("the calls %q came through, the metrics have %v and the status is %+v", inner.got, observed(t, gathered), c.Status())
	}
}

// slowly answers after so long, or ends with its context.
func slowly(after time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(after):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestClientFinishesChangesWhenTheManagerStops(t *testing.T) {
	t.Parallel()
	for operation := range operations(nil) {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for answers, want := range map[time.Duration]time.Duration{2 * time.Second: 2 * time.Second, time.Hour: callTimeout} {
					ask := operations(made(&capable{answer: slowly(answers)}))[operation]
					ctx, stop := context.WithCancel(t.Context())
					began, ended := time.Now(), make(chan error, 1)
					go func() { ended <- ask(ctx) }()
					synctest.Wait()
					stop()
					err := <-ended
					if reads(operation) {
						want = 0 // the answer is of no use, and nothing lands
					}
					if took := time.Since(began); took != want || (err == nil) != (want == answers) {
						t.Errorf("ended with %v after %s, want %s", err, took, want)
					}
				}
			})
		})
	}
}

func TestClientBeginsNoChangeWhenTheManagerStops(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	inner := &capable{}
	for operation, ask := range operations(made(inner)) {
		if err := ask(stopped); !reads(operation) && (Classify(err) != Fenced || !errors.Is(err, context.Canceled)) {
			t.Errorf("%s: got %v (%s), want it fenced", operation, err, Classify(err))
		}
	}
	if slices.ContainsFunc(inner.got, func(operation string) bool { return !reads(operation) }) {
		t.Errorf("the calls %q were made", inner.got)
	}
}

func TestClientInTime(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"bounds each call": func(t *testing.T) {
			c := made(&capable{answer: slowly(time.Hour)})
			for operation, ask := range operations(c) {
				began := time.Now()
				err := ask(t.Context())
				want := callTimeout
				if operation == list {
					want = listTimeouts * callTimeout
				}
				if took := time.Since(began); took != want || Classify(err) != TimedOut {
					t.Errorf("%s ended with %v (%s) after %s, want a time-out after %s", operation, err, Classify(err), took, want)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			err := operations(c)["heartbeat"](ctx)
			if took := time.Since(began); took != time.Second || Classify(err) != TimedOut {
				t.Errorf("ended with %v after %s, want the caller's own time where it is shorter", err, took)
			}
		},
		"calls Begin where the registry is asked": func(t *testing.T) {
			w, begun := newWorld(t, 2), 0
			w.come("web/1")
			by, change := w.caller("web/2")
			by.Begin = func() { begun++ }
			if err := w.Change(t.Context(), by, change); Classify(err) != Queued || begun > 0 {
				t.Errorf("got %v, begun %d times; want a caller that is queued to have begun nothing", err, begun)
			}
			w.answer(nil, "web/1")
			go func() { _ = w.Change(t.Context(), by, change) }()
			synctest.Wait()
			if begun != 1 {
				t.Errorf("begun %d times before the answer, want once", begun)
			}
			w.answer(nil, "web/2")
		},
		"shares the slots with the applications' entries": func(t *testing.T) {
			w := newWorld(t, 4)
			w.Client = New(apps{holding: &holding{w}}, Options{Timeout: testTimeout, MaxInFlight: 4})
			entries := w.AppEntries()
			if entries.Lists() || entries.Expires() || !entries.Gets() {
				t.Errorf("lists: %t, expires: %t, gets: %t; what others wrote is neither listed nor renewed", entries.Lists(), entries.Expires(), entries.Gets())
			}
			w.come("a/1!", "b/1!", "c/1!")
			own := w.Client
			w.Client = entries
			w.come("d/1!", "e/1!")
			synctest.Wait()
			if got := own.Status(); got.InUse != 4 || got.Queued != 1 {
				t.Errorf("got %+v, want 4 in use and one that waits: there is one server", got)
			}
			w.answer(nil, "a/1", "b/1", "c/1", "d/1")
			synctest.Wait()
			if err := own.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
			if err := entries.Change(t.Context(), Caller{ID: "x"}, registry.Change{State: registry.InService}); Classify(err) != Fenced {
				t.Errorf("a call after that gave %v, want it refused", err)
			}
		},
	})
}

func TestCloseWaitsForTheCallsUnderWay(t *testing.T) {
	t.Parallel()
	for operation := range operations(nil) {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := &capable{answer: slowly(time.Second)}
				c := made(inner)
				under, closed := make(chan error, 1), make(chan error, 1)
				go func() { under <- operations(c)[operation](t.Context()) }()
				synctest.Wait()
				go func() { closed <- c.Close() }()
				synctest.Wait()
				if inner.closed.Load() {
					t.Error("closed under a call")
				}
				for other, ask := range operations(c) {
					if err := ask(t.Context()); Classify(err) != Fenced || !errors.Is(err, errRetired) {
						t.Errorf("%s of a client that is closed: got %v, want it fenced", other, err)
					}
				}
				if err := errors.Join(<-under, <-closed); err != nil || !inner.closed.Load() {
					t.Errorf("got %v; closed: %t", err, inner.closed.Load())
				}
			})
		})
	}
}

func TestCallerWithoutWakeWaitsForASlot(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		free   bool
		want   Outcome
	}
	bubble.Each(t, map[string]row{
		"until one is free":   {"the call is made", true, Acknowledged},
		"for one call's time": {"work in the background has a next turn", false, Queued},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, 2)
		w.options.Timeout = time.Minute // it waits for as long; the call that is under way has more
		w.come("web/1")
		began, ended := time.Now(), make(chan error, 1)
		_, change := w.caller("web/resync")
		go func() { ended <- w.Change(t.Context(), Caller{}, change) }()
		w.sleep(time.Second)
		w.expectUnderWay("one slot for one service", "web/1")
		if tc.free {
			w.answer(nil, "web/1")
			w.answer(nil, "web/resync")
		}
		err := <-ended
		if took := time.Since(began); Classify(err) != tc.want || !tc.free && took != time.Minute {
			t.Errorf("got %v (%s) after %s, want %s\nreason: %s", err, Classify(err), took, tc.want, tc.reason)
		}
		w.answer(nil, w.underWay()...)
		w.expectEmpty()
	})
}

func TestBreakerLetsListsAndHeartbeatsThrough(t *testing.T) {
	t.Parallel()
	inner := &capable{answer: func(context.Context) error { return errDown }}
	c := made(inner)
	for i := range enough {
		_ = c.Change(t.Context(), Caller{ID: fmt.Sprint(i), Wake: func() {}}, registering("web", i+1))
	}
	if got := c.Status().Breaker; got != "open" {
		t.Fatalf("the breaker is %s, want open", got)
	}
	inner.answer = nil
	for _, operation := range []string{list, heartbeat} {
		if err := operations(c)[operation](t.Context()); err != nil {
			t.Errorf("%s: %v: entries expire, and what is lost is not found", operation, err)
		}
	}
	if got := c.Status().Breaker; got != "open" {
		t.Errorf("the breaker is %s: a registry that can be read can perhaps not be written", got)
	}
}

// TestPanicOfADriverIsAnError: the manager goes on, and the slot is free.
func TestPanicOfADriverIsAnError(t *testing.T) {
	t.Parallel()
	c := made(&capable{answer: func(context.Context) error { panic("a driver's mistake") }})
	for name, call := range operations(c) {
		if err := call(t.Context()); err == nil || !strings.Contains(err.Error(), "the driver panicked: a driver's mistake") {
			t.Errorf("%s: got %v, want the panic as an error", name, err)
		}
	}
	if got := c.Status(); got != (Status{Slots: 8, Breaker: "closed"}) {
		t.Errorf("got %+v, want free slots", got)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// apps is a registry in which applications register themselves, and that could list and renew what others wrote.
type apps struct {
	*holding
	registry.Lister
	registry.Heartbeater
}

func (a apps) AppEntries() registry.AppRegistry { return a }

func (apps) Get(context.Context, registry.Instance) (registry.State, error) {
	return registry.InService, nil
}
