package resync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
)

const interval = 30 * time.Second

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"renew each instance once in each interval, spread over it": func(t *testing.T) {
			w := newWorld(t, "eureka")
			w.hold("eureka", 600)
			w.start()
			time.Sleep(10 * interval)
			w.stop()
			for _, in := range w.Kept("eureka") {
				if n := w.beats[in.Endpoint()]; n < 9 || n > 11 {
					t.Errorf("%s was renewed %d times in 10 intervals", in.Endpoint(), n)
				}
			}
			if gap := w.longest; gap > interval+tick {
				t.Errorf("one was not renewed for %s, want at most %s", gap, interval+tick)
			}
			// 600 in 30 s are 20 in a second. As many as come at random, not all at once.
			if w.busiest > 60 {
				t.Errorf("%d heartbeats in one second, want about 20", w.busiest)
			}
		},
		"report a lost instance": func(t *testing.T) {
			w := newWorld(t, "eureka")
			w.hold("eureka", 3)
			var began time.Time
			w.fail = func(in registry.Instance) error {
				if in.Port == 2 {
					began = time.Now()
					time.Sleep(time.Second)
					return registry.NotRegistered(errors.New("404"))
				}
				return nil
			}
			w.start()
			time.Sleep(interval + tick)
			w.stop()
			if len(w.lost) != 1 || w.lost[0].Port != 2 || !w.asked.Equal(began) {
				t.Errorf("told that %v was lost, asked at %s; want the one at port 2, asked at %s", w.lost, w.asked, began)
			}
			if strings.Contains(w.log.String(), "fail") {
				t.Errorf("a lost entry is put back and no failure, and the log says %s", w.log.String())
			}
		},
		"log failures once until they pass": func(t *testing.T) {
			w := newWorld(t, "eureka")
			w.hold("eureka", 100)
			failed := errors.New("refused")
			var failures atomic.Int32
			w.set(func(registry.Instance) error { failures.Add(1); return failed })
			w.start()
			time.Sleep(3 * interval)
			w.set(func(registry.Instance) error { return nil })
			time.Sleep(2 * interval)
			w.stop()
			if fails, passes := strings.Count(w.log.String(), "heartbeats fail"), strings.Count(w.log.String(), "succeed again"); fails != 1 || passes != 1 {
				t.Errorf("logged %d failures and %d ends of them, want one of each:\n%s", fails, passes, w.log.String())
			}
			if want := fmt.Sprintf(`"failures"=%d "lastFailure"="refused"`, failures.Load()); !strings.Contains(w.log.String(), want) {
				t.Errorf("the end does not say %s:\n%s", want, w.log.String())
			}
			if len(w.lost) > 0 {
				t.Errorf("an error was taken for %d lost entries", len(w.lost))
			}
		},
		"that fail once in each interval go on failing": func(t *testing.T) {
			w := newWorld(t, "eureka")
			w.hold("eureka", 100)
			w.set(func(in registry.Instance) error {
				if in.Port == 2 {
					return errors.New("refused")
				}
				return nil
			})
			w.start()
			time.Sleep(5 * interval)
			w.stop()
			if told := strings.TrimSpace(w.log.String()); strings.Count(told, "heartbeats fail") != 1 || strings.Contains(told, "again") {
				t.Errorf("logged, want one failure:\n%s", told)
			}
		},
		"of a slow registry hold up no other": func(t *testing.T) {
			w := newWorld(t, "slow", "fast")
			w.hold("slow", 10)
			w.hold("fast", 10)
			w.hang = "slow"
			w.start()
			time.Sleep(5 * interval)
			w.stop()
			for _, in := range w.Kept("fast") {
				if w.beats[in.Endpoint()] < 4 {
					t.Errorf("%s was renewed %d times in 5 intervals", in.Endpoint(), w.beats[in.Endpoint()])
				}
			}
		},
		"follow the configuration at once": func(t *testing.T) {
			w := newWorld(t, "old")
			w.hold("old", 5)
			w.hold("new", 5)
			w.start()
			time.Sleep(interval)
			w.apply(registryclient.Registries{"new": w.client("new", interval*100)})
			before := w.total("old")
			time.Sleep(2 * interval)
			w.stop()
			if after := w.total("old"); after != before {
				t.Errorf("a registry that is gone got %d heartbeats more", after-before)
			}
			if n := w.total("new"); n < 5 {
				t.Errorf("a registry that is new got %d heartbeats for 5 instances in 2 intervals", n)
			}
		},
		"of a service that hangs cost others no turn": func(t *testing.T) {
			w := newWorld(t, "eureka")
			const timeout = 5 * time.Second
			w.apply(registryclient.Registries{"eureka": w.client("eureka", timeout)})
			w.holdOf("stuck", "stuck", 200)
			w.held["eureka"] = w.held["stuck"]
			w.hold("eureka", 100)
			w.set(func(in registry.Instance) error {
				if in.Service == "stuck" {
					time.Sleep(timeout)
					return context.DeadlineExceeded
				}
				return nil
			})
			w.start()
			time.Sleep(10 * interval)
			w.stop()
			for _, in := range w.Kept("eureka") {
				n := w.beats[in.Endpoint()]
				if in.Service != "stuck" && (n < 9 || n > 11) {
					t.Errorf("%s was renewed %d times in 10 intervals", in.Endpoint(), n)
				}
				// 16 at once of 5 s each are 96 in an interval.
				if in.Service == "stuck" && (n < 3 || n > 6) {
					t.Errorf("%s of the service that hangs was tried %d times in 10 intervals, want about 5", in.Endpoint(), n)
				}
			}
			if log := w.log.String(); strings.Count(log, "heartbeats fail") != 1 || strings.Contains(log, "again") {
				t.Errorf("logged, want one failure that has not passed:\n%s", log)
			}
		},
		"miss no turn over a reload": func(t *testing.T) {
			w, anew := newWorld(t, "eureka"), newWorld(t)
			w.hold("eureka", 100)
			w.start()
			// More often than there are rounds, and no turn is missed.
			for range int(2 * interval / (tick / 2)) {
				time.Sleep(tick / 2)
				w.apply(registryclient.Registries{"eureka": anew.client("eureka", interval*100)})
			}
			w.stop()
			if n := w.total("eureka"); n > 0 {
				t.Errorf("the one before got %d heartbeats", n)
			}
			for _, in := range w.Kept("eureka") {
				if n := anew.beats[in.Endpoint()]; n < 1 || n > 2 {
					t.Errorf("%s was renewed %d times in 2 intervals", in.Endpoint(), n)
				}
			}
		},
	})
}

func TestHeartbeatsOfAClosedClientFailUnlessItIsInForce(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		amid   func(*world)
		want   int
	}
	bubble.Each(t, map[string]row{
		"replaced": {"the next one renews", func(w *world) { w.apply(registryclient.Registries{"eureka": w.client("eureka", interval*100)}) }, 0},
		"dropped":  {"nothing is to be renewed there", func(w *world) { w.apply(nil) }, 0},
		"in force": {"the manager's lease was not renewed: entries expire", func(*world) {}, 1},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		w.hold("eureka", 1)
		once := sync.Once{}
		refuses := fence(func() (err error) {
			once.Do(func() {
				tc.amid(w)
				err = errors.New("no call may be made")
			})
			return err
		})
		w.apply(registryclient.Registries{"eureka": w.client("eureka", interval*100, refuses)})
		w.start()
		time.Sleep(3 * interval)
		w.stop()
		if got := strings.Count(w.log.String(), "heartbeats fail"); got != tc.want {
			t.Errorf("logged %d failures, want %d\nreason: %s\n%s", got, tc.want, tc.reason, w.log.String())
		}
	})
}

// fence is asked before each call.
type fence func() error

func (f fence) Permit(time.Duration) error { return f() }
func (f fence) MayLand(time.Time)          {}

func TestHeartbeatsHaveEndedWhenStartReturns(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]time.Duration{"at once": 0, "a second after their context": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "slow")
				w.hold("slow", 10)
				w.hang, w.late = "slow", late
				w.start()
				time.Sleep(interval)
				w.stop()
				if w.underWay > 0 {
					t.Errorf("%d heartbeats are under way after Start returned", w.underWay)
				}
				if strings.Contains(w.log.String(), "heartbeats fail") {
					t.Errorf("a manager that stops is no failure, and the log says %s", w.log.String())
				}
			})
		})
	}
}

func TestHeartbeatsToASlowRegistryAreBounded(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		services []string
		want     int
	}
	bubble.Each(t, map[string]row{
		"one service":    {"the other half is for the others", []string{"web"}, atOnce / 2},
		"three services": {"together they have no more than all", []string{"web", "api", "db"}, atOnce},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, "slow")
		for _, service := range tc.services {
			w.holdOf(service, "slow", 300)
		}
		w.hang = "slow"
		w.start()
		time.Sleep(2 * interval)
		w.mu.Lock()
		underWay := w.underWay
		w.mu.Unlock()
		w.stop()
		if underWay != tc.want {
			t.Errorf("%d heartbeats were under way, want %d\nreason: %s", underWay, tc.want, tc.reason)
		}
	})
}

func TestIsTurn(t *testing.T) {
	t.Parallel()
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 8080}
	turn := time.Unix(0, int64(1000*interval+turnOf(in, interval)))
	for name, tc := range map[string]struct {
		reason   string
		from, to time.Duration
		want     bool
	}{
		"at the end of a round":     {"every moment is in one round", -tick, 0, true},
		"at the beginning of one":   {"and in one only", 0, tick, false},
		"within":                    {"its turn has come", -1, 1, true},
		"before":                    {"not yet", -tick, -1, false},
		"a round of a whole length": {"everyone has a turn in it", 0, interval, true},
		"one that is longer":        {"so too", -1, 3 * interval, true},
		"one that is just shorter":  {"all but one moment are in it", 0, interval - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isTurn(in, interval, turn.Add(tc.from), turn.Add(tc.to)); got != tc.want {
				t.Errorf("from %s to %s of its turn: got %t, want %t\nreason: %s", tc.from, tc.to, got, tc.want, tc.reason)
			}
		})
	}
}

// world is a book, and the registries that it is about.
type world struct {
	running
	Pods // it has no more to do with them than what it implements

	mu       sync.Mutex
	held     map[string][]registry.Instance
	fail     func(registry.Instance) error
	hang     string
	late     time.Duration
	beats    map[string]int
	last     map[string]time.Time
	longest  time.Duration
	second   int64
	inSecond int
	busiest  int
	underWay int
	lost     []registry.Instance
	asked    time.Time
}

// running is a Resync in a bubble, and what it has logged.
type running struct {
	*testing.T
	resync *Resync
	cancel context.CancelFunc
	ended  chan error
	log    logged
}

func (r *running) start() {
	ctx, cancel := context.WithCancel(r.Context())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.resync.Start(ctx) }()
	synctest.Wait()
}

func (r *running) stop() {
	r.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.Errorf("Start returned %v", err)
	}
}

func (r *running) logger() logr.Logger {
	return funcr.New(func(_, args string) { r.log.WriteString(args + "\n") }, funcr.Options{})
}

// logged is what the loops of several keepers have logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) WriteString(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(s)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{
		running: running{T: t}, held: map[string][]registry.Instance{}, fail: func(registry.Instance) error { return nil },
		beats: map[string]int{}, last: map[string]time.Time{},
	}
	m := metrics.NewResyncMetrics(prometheus.NewRegistry())
	w.resync = New(Options{
		Pods: w, Synced: func() bool { return true }, Listed: make(chan struct{}), Metrics: m, Logger: w.logger(),
	})
	all := registryclient.Registries{}
	for _, name := range names {
		all[name] = w.client(name, interval*100)
	}
	w.apply(all)
	return w
}

func (w *world) apply(all registryclient.Registries) {
	w.resync.Apply(Policy{Interval: time.Minute}, all)
}

func (w *world) client(name string, timeout time.Duration, fences ...registryclient.Fence) *registryclient.Client {
	o := registryclient.Options{Timeout: timeout, MaxInFlight: 1}
	for _, f := range fences {
		o.Fence = f
	}
	return registryclient.New(beating{w: w, name: name}, o)
}

func (w *world) hold(name string, n int) { w.holdOf("web", name, n) }

func (w *world) holdOf(service, name string, n int) {
	for i := range n {
		w.held[name] = append(w.held[name], registry.Instance{Service: service, Address: name + ".example", Port: i + 1})
	}
}

func (w *world) set(fail func(registry.Instance) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

func (w *world) total(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := 0
	for _, in := range w.held[name] {
		total += w.beats[in.Endpoint()]
	}
	return total
}

func (w *world) Kept(name string) []registry.Instance { return w.held[name] }

func (w *world) Lost(target tracker.Target, asked time.Time) {
	in := target.Instance
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.asked = append(w.lost, in), asked
}

// beating is one of the world's registries.
type beating struct {
	registry.Registry
	w    *world
	name string
}

func (b beating) HeartbeatInterval() time.Duration { return interval }

func (b beating) Heartbeat(ctx context.Context, in registry.Instance) error {
	w := b.w
	w.mu.Lock()
	w.underWay++
	w.count(in)
	fail, hang := w.fail, w.hang == b.name
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.underWay--
	}()
	if hang {
		<-ctx.Done()
		time.Sleep(w.late)
		return fmt.Errorf("renewing: %w", ctx.Err())
	}
	return fail(in)
}

func (w *world) count(in registry.Instance) {
	now, key := time.Now(), in.Endpoint()
	w.beats[key]++
	if last, found := w.last[key]; found {
		w.longest = max(w.longest, now.Sub(last))
	}
	w.last[key] = now
	if w.second != now.Unix() {
		w.second, w.inSecond = now.Unix(), 0
	}
	w.inSecond++
	w.busiest = max(w.busiest, w.inSecond)
}
