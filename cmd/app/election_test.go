package app

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// The times of the default lease.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 8 * time.Second
	retryPeriod   = 800 * time.Millisecond
	yieldFor      = 5 * time.Second
)

func TestLeasePermits(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	type row struct {
		reason          string
		monotonic, wall time.Duration // since the renewal was sent
		want            error
	}
	expect.Each(t, map[string]row{
		"just renewed":                {"it holds for 15s", 0, 0, nil},
		"a renewal is due":            {"a call of 5s still ends in time", leaseDuration - timeout - time.Millisecond, leaseDuration - timeout - time.Millisecond, nil},
		"it ends too late":            {"the next manager may act by then", leaseDuration - timeout, leaseDuration - timeout, errNotRenewed},
		"it has long expired":         {"a process that was stopped wakes up", time.Hour, time.Hour, errNotRenewed},
		"the machine slept":           {"the monotonic clock stood still meanwhile", time.Second, time.Hour, errNotRenewed},
		"the wall clock was set back": {"15s have passed all the same", leaseDuration, -time.Hour, errNotRenewed},
		"the wall clock was slewed":   {"neither says that the lease is over", 3 * time.Second, 2 * time.Second, nil},
	}, func(t *testing.T, tc row) {
		s := newLeaseScenario()
		// The others count from when the API server had it, which is later than when it was sent.
		s.during = func() {
			s.now = moment{monotonic: s.now.monotonic.Add(tc.monotonic), wall: s.now.wall.Add(tc.wall)}
		}
		must(t, s.lease.Create(t.Context(), s.record("us")))
		if err := s.lease.permit(timeout); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
		}
	})
}

func TestReadClocksStripsTheMonotonicReadingOfTheWallClock(t *testing.T) {
	t.Parallel()
	now := readClocks()
	if now.wall != now.wall.Round(0) || now.monotonic == now.wall { //nolint:staticcheck // Equal leaves the monotonic clock out
		t.Errorf("read %v and %v: time.Sub takes the monotonic reading wherever there is one", now.monotonic, now.wall)
	}
}

func TestLeasePermitsNothingBeforeItIsHeld(t *testing.T) {
	t.Parallel()
	s := newLeaseScenario()
	s.err = errors.New("conflict")
	if err := s.lease.Update(t.Context(), s.record("us")); err == nil {
		t.Fatal("want the conflict")
	}
	if err := s.lease.permit(time.Second); !errors.Is(err, errNotRenewed) {
		t.Errorf("got %v, want %v", err, errNotRenewed)
	}
}

func TestLeaseIsLostForGoodOnceAnotherHeldIt(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"them", ""} {
		s := newLeaseScenario()
		s.ExpectGet(t, "them", nil)
		must(t, s.lease.Update(t.Context(), s.record("us")))
		s.ExpectGet(t, "us", nil)
		s.ExpectGet(t, holder, errDeposed)
		s.ExpectGet(t, "us", errDeposed)
		if err := s.lease.Update(t.Context(), s.record("us")); !errors.Is(err, errDeposed) {
			t.Errorf("renewing gave %v, want %v", err, errDeposed)
		}
		if err := s.lease.permit(time.Second); !errors.Is(err, errDeposed) {
			t.Errorf("permit gave %v, want %v", err, errDeposed)
		}
		if s.deposed != 1 {
			t.Errorf("deposed was called %d times, want once", s.deposed)
		}
	}
}

// TestLeaseIsLeftToAManagerThatIsReady has a manager find the lease free whose caches can't be filled.
func TestLeaseIsLeftToAManagerThatIsReady(t *testing.T) {
	t.Parallel()
	s := newLeaseScenario()
	failing := "clonesets: forbidden"
	s.lease.failing = func() string { return failing }
	expect := func(why string, taken bool) {
		t.Helper()
		err := s.lease.Update(t.Context(), s.record("us"))
		if taken != (err == nil) || err != nil && !strings.Contains(err.Error(), failing) {
			t.Errorf("%s: got %v, want the lease taken: %t, else what is wrong", why, err, taken)
		}
	}
	expect("another may be ready", false)
	s.pass(yieldFor - time.Millisecond)
	expect("another looks once in a while", false)
	s.ExpectGet(t, "them", nil)
	s.pass(time.Hour)
	s.ExpectGet(t, "", nil)
	expect("one took it, and has now given it back", false)
	s.ExpectGet(t, "them", nil)
	s.pass(time.Hour)
	expect("one took it, and was killed", false)
	s.pass(yieldFor)
	expect("no other has taken it", true)
	s.pass(time.Second)
	expect("it renews what it has", true)

	s = newLeaseScenario()
	expect("it can work", true)
}

// TestNoLease: who finds none, or one that nobody has given back, knows nothing of who led a moment ago.
func TestNoLease(t *testing.T) {
	t.Parallel()
	const look = retryPeriod
	type row struct {
		reason string
		// before is what happened before the lease is deleted, and during what happens each time that this manager looks.
		before func(t *testing.T, s *leaseScenario)
		during func(s *leaseScenario)
		// empty: there is a lease without a holder.
		empty bool
		// makes is after how long this manager may make the lease; negative if never.
		makes   time.Duration
		deposed int
	}
	held := func(t *testing.T, s *leaseScenario) {
		t.Helper()
		must(t, s.lease.Update(t.Context(), s.record("us")))
	}
	nothing := func(*leaseScenario) {}
	expect.Each(t, map[string]row{
		"a manager that waits": {"the leader may not have noticed", func(t *testing.T, s *leaseScenario) {
			t.Helper()
			s.ExpectGet(t, "them", nil)
		}, nothing, false, leaseDuration, 0},
		"a manager that starts": {
			"it can't know that it is the first one", func(*testing.T, *leaseScenario) {}, nothing, false, leaseDuration, 0,
		},
		"somebody has made one by hand": {
			"that shows as little", func(*testing.T, *leaseScenario) {}, nothing, true, leaseDuration, 0,
		},
		"the wall clock is set": {"no time has passed", func(*testing.T, *leaseScenario) {}, func(s *leaseScenario) {
			s.now.wall = s.now.wall.Add(time.Hour)
		}, false, leaseDuration, 0},
		"the leader": {"no other leads until its lease is over", held, nothing, false, 0, 0},
		"a leader that woke up": {"another may have led since, and its lease was deleted too", func(t *testing.T, s *leaseScenario) {
			t.Helper()
			held(t, s)
			s.pass(leaseDuration)
		}, nothing, false, -1, 1},
		"a leader that finds one made by hand": {"somebody else may lead", held, nothing, true, -1, 1},
	}, func(t *testing.T, tc row) {
		s := newLeaseScenario()
		tc.before(t, s)
		if s.held = s.record(""); !tc.empty {
			s.readErr = func() error { return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "rollcall") }
		}
		began, made := s.now.monotonic, time.Duration(-1)
		for range 30 {
			tc.during(s)
			record, _, err := s.lease.Get(t.Context())
			if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity == "" {
				made = s.now.monotonic.Sub(began)
				break
			}
			if err == nil && (record.HolderIdentity != unknownHolder || record.LeaseDurationSeconds != 15) {
				t.Fatalf("%s: the election is shown %+v, want a lease that somebody holds", tc.reason, record)
			}
			s.pass(look)
		}
		if early := made < tc.makes; early || made > tc.makes+look || s.deposed != tc.deposed {
			t.Errorf("%s: it may make the lease after %s, want %s; it was deposed %d times, want %d",
				tc.reason, made, tc.makes, s.deposed, tc.deposed)
		}
	})
}

// TestNoLeaseIsForgotten: the wait begins again if a lease was there in between.
func TestNoLeaseIsForgotten(t *testing.T) {
	t.Parallel()
	s := newLeaseScenario()
	missing := func() error { return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "rollcall") }
	there := s.readErr
	s.readErr = missing
	s.ExpectGet(t, "", nil)
	s.readErr = there
	s.pass(leaseDuration)
	s.ExpectGet(t, "them", nil) // the leader has made it again
	s.readErr = missing
	s.ExpectGet(t, "", nil)
	s.pass(leaseDuration - time.Millisecond)
	s.ExpectGet(t, "", nil)
	s.pass(time.Millisecond)
	if _, _, err := s.lease.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("after %s the election is told %v, want that there is no lease", leaseDuration, err)
	}
}

// TestLeaseNamesThePod: on the network of the node the host's name is the node's, and the kubectl plugin looks for the pod.
func TestLeaseNamesThePod(t *testing.T) {
	t.Setenv("POD_NAME", "rollcall-1")
	l, err := newLease(&rest.Config{}, "rollcall-system", config.DefaultLease, quiet())
	expect.NoError(t, err)
	if name, _ := l.pods(); name != "rollcall-1" {
		t.Errorf("it goes by the name %q", name)
	}
}

func TestLeaseRelease(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "rollcall", errors.New("it has changed"))
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "rollcall")
	type row struct {
		reason, holder  string
		read            error
		writes          []error
		want, wantError string
	}
	expect.Each(t, map[string]row{
		"its own lease":      {"the next manager need not wait", "us", nil, nil, "", ""},
		"another's lease":    {"it is not this manager's to give", "them", nil, nil, "them", ""},
		"a renewal is late":  {"the election's last renewal landed in between", "us", nil, []error{conflict, conflict}, "", ""},
		"no lease":           {"a manager that stops at once may not have made it", "us", missing, nil, "us", ""},
		"a read that failed": {"the error says what failed and why", "us", errors.New("no luck"), nil, "us", "giving the lease back: no luck"},
	}, func(t *testing.T, tc row) {
		s := newLeaseScenario()
		s.held = s.record(tc.holder)
		s.readErr = func() error { return tc.read }
		s.during = func() {
			if s.err = nil; len(tc.writes) > 0 {
				s.err, tc.writes = tc.writes[0], tc.writes[1:]
			}
		}
		err := s.lease.release(t.Context())
		if err == nil != (tc.wantError == "") || err != nil && err.Error() != tc.wantError {
			t.Errorf("%s: got %v, want %q", tc.reason, err, tc.wantError)
		}
		if s.held.HolderIdentity != tc.want || tc.want == "" && s.held.LeaseDurationSeconds != 1 {
			t.Errorf("%s: the lease is %+v, want it held by %q", tc.reason, s.held, tc.want)
		}
	})
}

func TestLeaseAheadOfLast(t *testing.T) {
	t.Parallel()
	s := newLeaseScenario()
	expect := func(why string, want time.Duration) {
		t.Helper()
		if got := s.lease.aheadOfLast(); got != want {
			t.Errorf("%s: got %s, want %s", why, got, want)
		}
	}
	renewed := func(holder string, by time.Duration) {
		s.held = s.record(holder)
		s.held.RenewTime = metav1.NewTime(s.now.wall.Add(by))
	}
	look := func() {
		if _, _, err := s.lease.Get(t.Context()); err != nil {
			t.Errorf("reading the lease: %v", err)
		}
	}
	expect("no renewal was seen", math.MaxInt64)
	renewed("them", -3*time.Second)
	look()
	expect("as the renewal was seen", 3*time.Second)
	s.pass(time.Minute)
	look()
	expect("the same renewal, and no more of the clocks", 3*time.Second)
	renewed("them", 5*time.Second)
	look()
	expect("their clock is ahead", -5*time.Second)
	s.pass(15 * time.Second)
	renewed("us", 0)
	look()
	expect("a renewal of this manager says nothing", -5*time.Second)
	var none *lease
	if got, err := none.aheadOfLast(), none.permit(time.Hour); got != math.MaxInt64 || err != nil {
		t.Errorf("without a lease: got %s and %v, want no bound, since nothing is known of the process before, and every call permitted", got, err)
	}
}

// leaseScenario is a lease whose record and clock the test holds.
type leaseScenario struct {
	lease   *lease
	held    resourcelock.LeaderElectionRecord
	now     moment
	err     error // of the next writes
	readErr func() error
	during  func()
	deposed int
}

func newLeaseScenario() *leaseScenario {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &leaseScenario{now: moment{began, began}, during: func() {}}
	s.readErr = func() error { return s.err }
	s.lease = &lease{Interface: s, times: config.DefaultLease, now: func() moment { return s.now }, deposed: func() { s.deposed++ }, failing: func() string { return "" }, logger: quiet()}
	return s
}

// pass lets time pass on both clocks.
func (s *leaseScenario) pass(d time.Duration) {
	s.now.monotonic = s.now.monotonic.Add(d)
	s.now.wall = s.now.wall.Add(d)
}

func (*leaseScenario) record(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
}

// ExpectGet reads the lease while holder has it.
func (s *leaseScenario) ExpectGet(t *testing.T, holder string, want error) {
	t.Helper()
	s.held = s.record(holder)
	if _, _, err := s.lease.Get(t.Context()); !errors.Is(err, want) {
		t.Errorf("reading the lease of %q gave %v, want %v", holder, err, want)
	}
}

func (s *leaseScenario) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record := s.held
	return &record, nil, s.readErr()
}

func (s *leaseScenario) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return s.Update(ctx, r)
}

func (s *leaseScenario) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	s.during()
	if s.err == nil {
		s.held = r
	}
	return s.err
}

func (*leaseScenario) RecordEvent(string) {}
func (*leaseScenario) Identity() string   { return "us" }
func (*leaseScenario) Describe() string   { return "team/rollcall" }

func TestTimeoutLimitIsPermittedToALeaderThatRenews(t *testing.T) {
	t.Parallel()
	s := newLeaseScenario()
	must(t, s.lease.Update(t.Context(), s.record("us")))
	client := registryclient.New(&fake{}, registryclient.Options{
		Timeout: config.DefaultLease.TimeoutLimit() - time.Millisecond, MaxInFlight: 1, Fence: &app{lease: s.lease},
	})
	s.pass(3 * retryPeriod) // a renewal was slow, and is on its way still
	if err := register(t.Context(), &opened{client: client}); err != nil {
		t.Errorf("a call is refused, and pods wait although nothing is wrong: %v", err)
	}
}

func TestResignKeepsTheLeaseWhileACallMayLand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseScenario()
		s.lease.now, s.held = readClocks, s.record("us")
		began := time.Now()
		a := &app{lease: s.lease, logger: quiet()}
		a.MayLand(began.Add(4 * time.Second))
		a.MayLand(began.Add(2 * time.Second))
		must(t, a.resign(t.Context()))
		if kept := time.Since(began); kept != 4*time.Second || s.held.HolderIdentity != "" {
			t.Errorf("the lease is %+v after %s, want it given back after the later of the calls", s.held, kept)
		}
		must(t, a.resign(t.Context()))
		if kept := time.Since(began); kept != 4*time.Second {
			t.Errorf("it was kept for %s although nothing may land any more", kept)
		}
	})
}
