package resync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
		if diff := cmp.Diff(map[string]registry.State{"a/app 10.0.0.2:80": registry.InService}, s.differs); diff != "" {
			t.Errorf("found otherwise (-want +got):\n%s", diff)
		}
		s.expectLogged("an application's entry is not what was acknowledged", asked(out))
		s.stop()
		if n := len(s.fakes["a"].Calls(fakeregistry.Match{})) - asked(in) - asked(out) - s.lists("a"); n > 0 {
			t.Errorf("%d other calls: a watch changes nothing", n)
		}
	})
}
