package resync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const interval = 30 * time.Second

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	bubble.Scenes(t, map[string]func(t *testing.T){
		"renew each instance once in each interval, spread over it": func(t *testing.T) {
			s := newScene(t)
			b := s.beats("eureka", "web", 600, renews)
			s.start()
			time.Sleep(10 * interval)
			s.stop()
			inSecond := map[int64]int{}
			for _, in := range s.kept["eureka"] {
				if n := b.times(in); n < 9 || n > 11 {
					t.Errorf("%s was renewed %d times in 10 intervals", in.Endpoint(), n)
				}
				var last time.Time
				for _, began := range b.began[in.Endpoint()] {
					if gap := began.Sub(last); !last.IsZero() && gap > interval+tick {
						t.Errorf("%s was not renewed for %s, want at most %s", in.Endpoint(), gap, interval+tick)
					}
					last = began
					inSecond[began.Unix()]++
				}
			}
			// 600 in 30 s are 20 in a second. As many as come at random, not all at once.
			if busiest := slices.Max(slices.Collect(maps.Values(inSecond))); busiest > 60 {
				t.Errorf("%d heartbeats in one second, want about 20", busiest)
			}
		},
		"report a lost instance": func(t *testing.T) {
			s := newScene(t)
			var began time.Time
			s.beats("eureka", "web", 3, func(_ context.Context, in registry.Instance) error {
				if in.Port != 2 {
					return nil
				}
				began = time.Now()
				time.Sleep(time.Second)
				return registry.NotRegistered(errors.New("404"))
			})
			s.start()
			time.Sleep(interval + tick)
			s.stop()
			if len(s.lost) != 1 || s.lost[0].Port != 2 || !s.asked.Equal(began) {
				t.Errorf("told that %v was lost, asked at %s; want the one at port 2, asked at %s", s.lost, s.asked, began)
			}
			s.expectLogged("fail", 0) // a lost entry is put back
		},
		"log failures once until they pass": func(t *testing.T) {
			s := newScene(t)
			var fails atomic.Bool
			var failures atomic.Int32
			s.beats("eureka", "web", 100, func(context.Context, registry.Instance) error {
				if !fails.Load() {
					return nil
				}
				failures.Add(1)
				return refused
			})
			fails.Store(true)
			s.start()
			time.Sleep(3 * interval)
			fails.Store(false)
			time.Sleep(2 * interval)
			s.stop()
			s.expectLogged("heartbeats fail", 1)
			s.expectLogged("succeed again", 1)
			s.expectLogged(fmt.Sprintf(`"failures"=%d "lastFailure"="refused"`, failures.Load()), 1)
			if len(s.lost) > 0 {
				t.Errorf("an error was taken for %d lost entries", len(s.lost))
			}
		},
		"that fail once in each interval go on failing": func(t *testing.T) {
			s := newScene(t)
			s.beats("eureka", "web", 100, func(_ context.Context, in registry.Instance) error {
				if in.Port == 2 {
					return refused
				}
				return nil
			})
			s.start()
			time.Sleep(5 * interval)
			s.stop()
			s.expectLogged("heartbeats fail", 1)
			s.expectLogged("again", 0)
		},
		"of a slow registry hold up no other": func(t *testing.T) {
			s := newScene(t)
			s.beats("slow", "web", 10, hangs)
			fast := s.beats("fast", "web", 10, renews)
			s.start()
			time.Sleep(5 * interval)
			s.stop()
			for _, in := range s.kept["fast"] {
				if n := fast.times(in); n < 4 {
					t.Errorf("%s was renewed %d times in 5 intervals", in.Endpoint(), n)
				}
			}
		},
		"follow the configuration at once": func(t *testing.T) {
			s := newScene(t)
			old := s.beats("old", "web", 5, renews)
			s.start()
			time.Sleep(interval)
			delete(s.registries, "old")
			anew := s.beats("new", "web", 5, renews)
			s.apply()
			before := old.total()
			time.Sleep(2 * interval)
			s.stop()
			if after := old.total(); after != before {
				t.Errorf("a registry that is gone got %d heartbeats more", after-before)
			}
			if n := anew.total(); n < 5 {
				t.Errorf("a registry that is new got %d heartbeats for 5 instances in 2 intervals", n)
			}
		},
		"of a service that hangs cost others no turn": func(t *testing.T) {
			s := newScene(t)
			b := s.beats("eureka", "stuck", 200, func(ctx context.Context, in registry.Instance) error {
				if in.Service == "stuck" {
					return hangs(ctx, in)
				}
				return nil
			})
			s.keeps("eureka", "web", 100)
			s.renewedAt("eureka", b, func(o *registryclient.Options) { o.Timeout = timeout })
			s.start()
			time.Sleep(10 * interval)
			s.stop()
			for _, in := range s.kept["eureka"] {
				n := b.times(in)
				if in.Service != "stuck" && (n < 9 || n > 11) {
					t.Errorf("%s was renewed %d times in 10 intervals", in.Endpoint(), n)
				}
				// 16 at once of 5 s each are 96 in an interval.
				if in.Service == "stuck" && (n < 3 || n > 6) {
					t.Errorf("%s of the service that hangs was tried %d times in 10 intervals, want about 5", in.Endpoint(), n)
				}
			}
			s.expectLogged("heartbeats fail", 1)
			s.expectLogged("again", 0)
		},
		"keep nothing of services that are gone": func(t *testing.T) {
			s := newScene(t)
			b := s.beats("eureka", "web", 1, renews)
			for i := range 100 {
				s.keeps("eureka", fmt.Sprintf("preview-%d", i), 1)
			}
			s.start()
			time.Sleep(2 * interval)
			s.stop()
			h := &s.resync.keepers["eureka"].heartbeats
			if n := b.total(); n < 101 || len(h.ofService)+len(h.underWay) > 0 {
				t.Errorf("after %d heartbeats there are slots of %d services, and %d are under way, want none", n, len(h.ofService), len(h.underWay))
			}
		},
		"of an instance are made one at a time": func(t *testing.T) {
			s := newScene(t)
			b := s.beats("slow", "web", 1, hangs)
			s.start()
			time.Sleep(5 * interval)
			expect.Equal(t, 1, b.total(), "heartbeats of an entry whose first one is under way")
			s.stop()
		},
		"are for entries that expire": func(t *testing.T) {
			s := newScene(t, "a")
			s.keeps("a", "web", 1)
			s.start()
			time.Sleep(interval)
			s.stop()
			s.expectLogged("heartbeats fail", 0)
		},
		"miss no turn over a reload": func(t *testing.T) {
			s := newScene(t)
			first := s.beats("eureka", "web", 100, renews)
			s.start()
			anew := &beating{answer: renews, began: map[string][]time.Time{}}
			// More often than there are rounds, and no turn is missed.
			for range int(2 * interval / (tick / 2)) {
				time.Sleep(tick / 2)
				s.renewedAt("eureka", anew)
				s.apply()
			}
			s.stop()
			if n := first.total(); n > 0 {
				t.Errorf("the one before got %d heartbeats", n)
			}
			for _, in := range s.kept["eureka"] {
				if n := anew.times(in); n < 1 || n > 2 {
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
		amid   func(*scene, *beating)
		want   int
	}
	bubble.Each(t, map[string]row{
		"replaced": {"the next one renews", func(s *scene, b *beating) { s.renewedAt("eureka", b) }, 0},
		"dropped":  {"nothing is to be renewed there", func(s *scene, _ *beating) { delete(s.registries, "eureka") }, 0},
		"in force": {"the manager's lease was not renewed: entries expire", func(*scene, *beating) {}, 1},
	}, func(t *testing.T, tc row) {
		s := newScene(t)
		b := s.beats("eureka", "web", 1, renews)
		once := sync.Once{}
		refuses := fence(func() (err error) {
			once.Do(func() {
				tc.amid(s, b)
				s.apply()
				err = errors.New("no call may be made")
			})
			return err
		})
		s.renewedAt("eureka", b, func(o *registryclient.Options) { o.Fence = refuses })
		s.start()
		time.Sleep(3 * interval)
		s.stop()
		t.Log(tc.reason) // shown where it fails
		s.expectLogged("heartbeats fail", tc.want)
	})
}

// fence is asked before each call.
type fence func() error

func (f fence) Permit(time.Duration) error { return f() }
func (f fence) MayLand(time.Time)          {}

func TestHeartbeatsHaveEndedWhenStartReturns(t *testing.T) {
	t.Parallel()
	bubble.Each(t, map[string]time.Duration{
		"at once": 0, "a second after their context": time.Second,
	}, func(t *testing.T, late time.Duration) {
		s := newScene(t)
		b := s.beats("slow", "web", 10, func(ctx context.Context, in registry.Instance) error {
			defer time.Sleep(late)
			return hangs(ctx, in)
		})
		s.start()
		time.Sleep(interval)
		s.stop()
		if b.underWay > 0 {
			t.Errorf("%d heartbeats are under way after Start returned", b.underWay)
		}
		s.expectLogged("heartbeats fail", 0) // a manager that stops is no failure
	})
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
		s := newScene(t)
		b := s.beats("slow", tc.services[0], 300, hangs)
		for _, service := range tc.services[1:] {
			s.keeps("slow", service, 300)
		}
		s.start()
		time.Sleep(2 * interval)
		var underWay int
		b.set(func() { underWay = b.underWay })
		s.stop()
		expect.Equal(t, tc.want, underWay, "heartbeats were under way: %s", tc.reason)
	})
}

func TestIsTurn(t *testing.T) {
	t.Parallel()
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 8080}
	turn := time.Unix(0, int64(1000*interval+turnOf(in, interval)))
	type row struct {
		reason   string
		from, to time.Duration
		want     bool
	}
	expect.Each(t, map[string]row{
		"at the end of a round":     {"every moment is in one round", -tick, 0, true},
		"at the beginning of one":   {"and in one only", 0, tick, false},
		"within":                    {"its turn has come", -1, 1, true},
		"before":                    {"not yet", -tick, -1, false},
		"a round of a whole length": {"everyone has a turn in it", 0, interval, true},
		"one that is longer":        {"so too", -1, 3 * interval, true},
		"one that is just shorter":  {"all but one moment are in it", 0, interval - 1, false},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, isTurn(in, interval, turn.Add(tc.from), turn.Add(tc.to)), "from %s to %s of its turn: %s", tc.from, tc.to, tc.reason)
	})
}

// beating is a registry whose entries expire. It notes when it was asked to renew each of them.
type beating struct {
	registry.Registry
	answer func(context.Context, registry.Instance) error

	mu       sync.Mutex
	began    map[string][]time.Time // by endpoint
	underWay int
}

// beats adds a registry that answers so, and that has n instances of the service to be renewed.
func (s *scene) beats(name, service string, n int, answer func(context.Context, registry.Instance) error) *beating {
	b := &beating{answer: answer, began: map[string][]time.Time{}}
	s.renewedAt(name, b)
	s.keeps(name, service, n)
	return b
}

// renewedAt has the entries of a registry be renewed there.
func (s *scene) renewedAt(name string, b *beating, change ...func(*registryclient.Options)) {
	patient := func(o *registryclient.Options) { o.Timeout = 100 * interval }
	s.client(name, b, append([]func(*registryclient.Options){patient}, change...)...)
}

// keeps adds n instances of the service to those that a registry has to renew.
func (s *scene) keeps(name, service string, n int) {
	s.set(func() {
		for i := range n {
			s.kept[name] = append(s.kept[name], registry.Instance{Service: service, Address: service + "." + name, Port: i + 1})
		}
	})
}

func (b *beating) Traits() registry.Traits { return registry.Traits{HeartbeatInterval: interval} }

func (b *beating) Heartbeat(ctx context.Context, in registry.Instance) error {
	b.set(func() {
		b.underWay++
		b.began[in.Endpoint()] = append(b.began[in.Endpoint()], time.Now())
	})
	defer b.set(func() { b.underWay-- })
	return b.answer(ctx, in)
}

func (b *beating) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// times is how often the instance was renewed, and total how often all of them.
func (b *beating) times(in registry.Instance) (times int) {
	b.set(func() { times = len(b.began[in.Endpoint()]) })
	return times
}

func (b *beating) total() (total int) {
	b.set(func() {
		for _, began := range b.began {
			total += len(began)
		}
	})
	return total
}

func renews(context.Context, registry.Instance) error { return nil }

// hangs ends with its caller's time.
func hangs(ctx context.Context, _ registry.Instance) error {
	<-ctx.Done()
	return fmt.Errorf("renewing: %w", ctx.Err())
}
