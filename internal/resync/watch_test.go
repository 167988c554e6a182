package resync

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
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
		if diff := cmp.Diff(map[string]registry.State{"a (by the application) 10.0.0.2:80": registry.InService}, s.differs); diff != "" {
			t.Errorf("found otherwise (-want +got):\n%s", diff)
		}
		s.expectLogged("an application's entry is not what was acknowledged", asked(out))
		s.stop()
		if n := len(s.fakes["a"].Calls(fakeregistry.Match{})) - asked(in) - asked(out) - s.lists("a"); n > 0 {
			t.Errorf("%d other calls: a watch changes nothing", n)
		}
	})
}

// slowApps has applications' entries that it takes its time to tell of, as Nacos does.
type slowApps struct {
	*fakeregistry.Registry
	takes time.Duration

	mu                   sync.Mutex
	asked                map[string]int // by the address
	underWay, mostAtOnce int
}

func (s *slowApps) AppEntries() registry.AppRegistry {
	return slowAppEntries{s.Registry.AppEntries(), s}
}

type slowAppEntries struct {
	registry.AppRegistry
	slow *slowApps
}

func (s slowAppEntries) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	s.slow.count(in, 1)
	defer s.slow.count(in, -1)
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(s.slow.takes):
	}
	return s.AppRegistry.Get(ctx, in)
}

// count counts a question that begins, by 1, or ends, by -1.
func (s *slowApps) count(in registry.Instance, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[in.Address] += max(n, 0)
	s.underWay += n
	s.mostAtOnce = max(s.mostAtOnce, s.underWay)
}

// TestSlowQuestionsHoldUpNoOthers has a registry that takes a second for each.
func TestSlowQuestionsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		in, out int
	}{
		"many in rotation": {
			reason: "what has to be out may come back at any time, and those in rotation can wait",
			in:     500, out: 5,
		},
		"many of both": {
			reason: "a loop may have as many questions as it can ask in time",
			in:     500, out: 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, "a")
				slow := &slowApps{Registry: s.fakes["a"], takes: time.Second, asked: map[string]int{}}
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
				for _, one := range s.out {
					if n := slow.asked[one.Address]; n < 20 {
						t.Errorf("in two minutes asked %d times for %s, which has to be out, want 10 a minute\nreason: %s", n, one.Address, tc.reason)
					}
				}
				for _, one := range s.in {
					if slow.asked[one.Address] == 0 {
						t.Errorf("in two minutes never asked for %s, which has to be in rotation\nreason: %s", one.Address, tc.reason)
					}
				}
				if slow.mostAtOnce > 2*askAtOnce {
					t.Errorf("%d questions at once, want at most %d for each of two loops", slow.mostAtOnce, askAtOnce)
				}
				s.expectLogged("asking for applications' entries fails", 0)
			})
		})
	}
}
