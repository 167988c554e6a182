package resync

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func TestApplicationsEntriesAreWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "a")
		at := func(address string) registry.Instance {
			return registry.Instance{Service: "web", Address: address, Port: 80, UID: address}
		}
		in, out := at("10.0.0.1"), at("10.0.0.2")
		s.in, s.out = []registry.Instance{in}, []registry.Instance{out}
		asked := func(one registry.Instance) int {
			return len(s.fakes["a"].Calls(fakeregistry.Match{Op: fakeregistry.OpAppGet, UID: one.UID}))
		}
		for _, one := range []registry.Instance{in, out} {
			s.fakes["a"].App(one).Register()
		}
		s.start()
		time.Sleep(4*time.Minute + time.Second)
		synctest.Wait()
		if n, m := asked(in), asked(out); n != 4 || m < 40 {
			t.Errorf("in 4 minutes asked %d times for what is in rotation, and %d times for what is out; want 4, and one each %s", n, m, glance)
		}
		expect.Equal(t, map[string]registry.State{"a (by the application) 10.0.0.2:80": registry.InService}, s.differs, "found otherwise")
		s.expectLogged("an application's entry is not what was acknowledged", asked(out))
		s.stop()
		if n := len(s.fakes["a"].Calls(fakeregistry.Match{})) - asked(in) - asked(out) - s.lists("a"); n > 0 {
			t.Errorf("%d other calls: a watch changes nothing", n)
		}
	})
}

// TestReadsThatFail are logged once, and when they pass; those of a client that is closed are not.
func TestReadsThatFail(t *testing.T) {
	t.Parallel()
	get := fakeregistry.Match{Op: fakeregistry.OpAppGet}
	bubble.Scenes(t, map[string]func(t *testing.T){
		"for a while": func(t *testing.T) {
			s := newScene(t, "a")
			s.out = []registry.Instance{{Service: "web", Address: "10.0.0.1", Port: 80, UID: "1"}}
			heal := s.fakes["a"].Fail(get, errors.New("refused"))
			s.start()
			time.Sleep(3 * glance)
			s.expectLogged("asking for applications' entries fails", 1)
			expect.Equal(t, 0, len(s.differs), "entries that differ")
			heal()
			time.Sleep(glance)
			s.expectLogged("asking for applications' entries succeeds again", 1)
			hold := s.fakes["a"].Hold(get)
			time.Sleep(glance)
			s.stop()
			hold.Release()
			s.expectLogged("asking for applications' entries fails", 1) // a manager that stops does not count as one
		},
		"are not made once the manager stops": func(t *testing.T) {
			s := newScene(t, "a")
			for i := range 3 * askAtOnce {
				s.out = append(s.out, registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80 + i, UID: "1"})
			}
			s.fakes["a"].Hold(get)
			s.start()
			s.stop()
			expect.Equal(t, askAtOnce, len(s.fakes["a"].Calls(get)), "reads")
		},
		"since the registry is dropped": func(t *testing.T) {
			s := newScene(t, "a")
			s.out = []registry.Instance{{Service: "web", Address: "10.0.0.1", Port: 80, UID: "1"}}
			var once sync.Once
			s.client("a", s.fakes["a"], func(o *registryclient.Options) {
				o.Fence = fence(func() error {
					once.Do(func() {
						delete(s.registries, "a")
						s.apply()
					})
					return errors.New("no call may be made")
				})
			})
			s.start()
			s.stop()
			s.expectLogged("asking for applications' entries fails", 0)
		},
	})
}

// mostAtOnce is how many of the calls were under way at the same time.
func mostAtOnce(calls []fakeregistry.Call) (most int) {
	for _, c := range calls {
		underWay := 0
		for _, o := range calls {
			if !o.Started.After(c.Started) && (o.Answered.IsZero() || o.Answered.After(c.Started)) {
				underWay++
			}
		}
		most = max(most, underWay)
	}
	return most
}

// TestSlowQuestionsHoldUpNoOthers has a registry that takes a second for each.
func TestSlowQuestionsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		in, out int
	}
	expect.Each(t, map[string]row{
		"many in rotation": {
			reason: "what has to be out may come back at any time, and those in rotation can wait",
			in:     500, out: 5,
		},
		"many of both": {
			reason: "a loop may have as many questions as it can ask in time",
			in:     500, out: 100,
		},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, "a")
			slow, gets := s.fakes["a"], fakeregistry.Match{Op: fakeregistry.OpAppGet}
			slow.Delay(gets, time.Second)
			s.client("a", slow, func(o *registryclient.Options) { o.MaxInFlight = 1 })
			for i := range tc.in + tc.out {
				at := registry.Instance{Service: "web", Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Port: 80, UID: fmt.Sprint(i)}
				if slow.App(at).Register(); i < tc.in {
					s.in = append(s.in, at)
					continue
				}
				s.out = append(s.out, at)
			}
			s.start()
			time.Sleep(2*time.Minute + time.Second)
			s.stop()
			asked := map[string]int{}
			for _, c := range slow.Calls(gets) {
				asked[c.Instance.Address]++
			}
			for _, one := range s.out {
				if n := asked[one.Address]; n < 20 {
					t.Errorf("in two minutes asked %d times for %s, which must be out, want 10 a minute\nreason: %s", n, one.Address, tc.reason)
				}
			}
			for _, one := range s.in {
				if asked[one.Address] == 0 {
					t.Errorf("in two minutes never asked for %s, which must be in rotation\nreason: %s", one.Address, tc.reason)
				}
			}
			if most := mostAtOnce(slow.Calls(gets)); most > 2*askAtOnce {
				t.Errorf("%d questions at once, want at most %d for each of two loops", most, askAtOnce)
			}
			s.expectLogged("asking for applications' entries fails", 0)
		})
	})
}
