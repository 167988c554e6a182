package registrytest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// everything is generous: what is waited for comes at once.
const everything = 30 * time.Second

var errPassing = errors.New("try later")

func web(pod string) registry.Instance {
	return registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: 80, Cluster: "test", Namespace: "shop", Pod: pod, UID: "uid-" + pod,
	}
}

// scene is a fake over the memory registry, with expectations in the words of the tests.
type scene struct {
	*registrytest.Fake
	t   *testing.T
	ctx context.Context
}

func newScene(t *testing.T) scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), everything)
	t.Cleanup(cancel)
	return scene{Fake: registrytest.NewFake(newMemory(t)), t: t, ctx: ctx}
}

// inBackground makes a call, and returns how to wait for its answer.
func inBackground(call func() error) (answer func() error) {
	got := make(chan error, 1)
	go func() { got <- call() }()
	return func() error { return <-got }
}

func (s scene) expect(what string, got, want error) {
	s.t.Helper()
	if !errors.Is(got, want) {
		s.t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func (s scene) expectKnown(pods ...string) {
	s.t.Helper()
	entries, err := s.Truth(s.ctx, "test")
	if err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Pod)
	}
	if diff := cmp.Diff(pods, got); diff != "" {
		s.t.Errorf("the backend's pods, -want +got:\n%s", diff)
	}
}

func TestFakeIsTransparent(t *testing.T) {
	t.Parallel()
	h := overMemory(t, func(b registrytest.Backend) registry.Registry { return registrytest.NewFake(b) })
	delete(h.Lacks, registrytest.Getting)
	registrytest.Run(t, h)
}

func TestFakeWritesDownEveryCall(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.FailNext(registrytest.Match{Op: registrytest.OpFailOver}, errPassing)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), errPassing)
	if _, err := s.List(s.ctx, "test"); err != nil {
		t.Errorf("List: %v", err)
	}
	calls := s.Calls(registrytest.Match{})
	if len(calls) != 3 {
		t.Fatalf("journal: got %d calls, want 3: %+v", len(calls), calls)
	}
	for i, want := range []struct {
		op       registrytest.Op
		instance registry.Instance
		err      error
		applied  bool
	}{
		{registrytest.OpRegister, web("a"), nil, true},
		{registrytest.OpFailOver, web("a"), errPassing, false},
		{registrytest.OpList, registry.Instance{Cluster: "test"}, nil, true},
	} {
		c := calls[i]
		if c.Op != want.op || !c.Instance.Equal(want.instance) || !errors.Is(c.Err, want.err) || c.Applied.IsZero() == want.applied {
			t.Errorf("call %d: got %+v, want %+v", i, c, want)
		}
		if c.Acknowledged() != (want.err == nil) {
			t.Errorf("call %d: acknowledged %t with answer %v", i, c.Acknowledged(), c.Err)
		}
		inOrder := !c.Answered.Before(c.Started) && !c.Applied.After(c.Answered) && (i == 0 || !c.Started.Before(calls[i-1].Answered))
		if !inOrder {
			t.Errorf("call %d: times are out of order: %+v", i, c)
		}
	}
}

func TestFakeMatches(t *testing.T) {
	t.Parallel()
	call := registrytest.Call{Op: registrytest.OpRegister, Instance: web("a")}
	for name, tc := range map[string]struct {
		reason string
		match  registrytest.Match
		want   bool
	}{
		"everything":        {"the zero Match selects all", registrytest.Match{}, true},
		"op":                {"the op is equal", registrytest.Match{Op: registrytest.OpRegister}, true},
		"another op":        {"the op differs", registrytest.Match{Op: registrytest.OpFailOver}, false},
		"another service":   {"the service differs", registrytest.Match{Service: "db"}, false},
		"another namespace": {"the namespace differs", registrytest.Match{Namespace: "staging"}, false},
		"another pod":       {"the pod differs", registrytest.Match{Pod: "b"}, false},
		"another uid":       {"the UID differs, the pod does not", registrytest.Match{Pod: "a", UID: "uid-b"}, false},
		"all of it": {
			"all fields are equal",
			registrytest.Match{Op: registrytest.OpRegister, Service: "web", Namespace: "shop", Pod: "a", UID: "uid-a"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.match.Matches(call); got != tc.want {
				t.Errorf("%+v matches %+v: got %t, want %t: %s", tc.match, call, got, tc.want, tc.reason)
			}
		})
	}
}

func TestFakeHandsOutErrorsInTurnBeforeStandingOnes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	first, second, standing := errors.New("first"), errors.New("second"), errors.New("standing")
	s.FailNext(registrytest.Match{Op: registrytest.OpRegister}, first, second)
	stop := s.Fail(registrytest.Match{}, standing)

	s.expect("1st Register", s.Register(s.ctx, web("a")), first)
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), standing)
	s.expect("2nd Register", s.Register(s.ctx, web("a")), second)
	s.expect("3rd Register", s.Register(s.ctx, web("a")), standing)
	s.expectKnown()
	stop()
	s.expect("4th Register", s.Register(s.ctx, web("a")), nil)
	s.expectKnown("a")
}

func TestFakeLosesAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.LoseAnswers(registrytest.Match{}, 2, errPassing)
	s.expect("Register", s.Register(s.ctx, web("a")), errPassing)
	s.expectKnown("a")
	s.expect("Deregister", s.Deregister(s.ctx, web("a")), errPassing)
	s.expectKnown()
	s.expect("Register again", s.Register(s.ctx, web("a")), nil)
}

func TestFakeHoldsCalls(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hold := s.Hold(registrytest.Match{Pod: "a"})
	held := inBackground(func() error { return s.Register(s.ctx, web("a")) })
	if err := hold.AwaitReached(s.ctx, 1); err != nil {
		t.Fatal(err)
	}
	s.expectKnown()
	if c := s.Calls(registrytest.Match{}); len(c) != 1 || !c[0].Answered.IsZero() {
		t.Errorf("journal while the call is held: %+v, want one call with no answer", c)
	}

	impatient, cancel := context.WithCancel(s.ctx)
	gone := inBackground(func() error { return s.Deregister(impatient, web("a")) })
	if err := hold.AwaitReached(s.ctx, 2); err != nil {
		t.Fatal(err)
	}
	cancel()
	s.expect("call that gave up", gone(), context.Canceled)

	hold.Release()
	hold.Release() // does nothing
	s.expect("held call", held(), nil)
	s.expectKnown("a")
	s.expect("call after the release", s.Deregister(s.ctx, web("a")), nil)
	s.expectKnown()
}

func TestFakeLandsWorkAfterItsCallerGaveUp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	late := s.LandLate(registrytest.Match{Op: registrytest.OpDeregister}, 1)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)

	short, cancel := context.WithTimeout(s.ctx, time.Millisecond)
	defer cancel()
	s.expect("Deregister", s.Deregister(short, web("a")), context.DeadlineExceeded)
	s.expectKnown("a")

	late.Release()
	s.expectKnown()
	c := s.Calls(registrytest.Match{Op: registrytest.OpDeregister})
	if len(c) != 1 || !c[0].Applied.After(c[0].Answered) || c[0].Acknowledged() {
		t.Errorf("journal: %+v, want one call that was applied after it was answered, with an error", c)
	}
}

func TestFakeDelays(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const delay = 20 * time.Millisecond
	stop := s.Delay(registrytest.Match{}, delay)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	if c := s.Calls(registrytest.Match{})[0]; c.Applied.Sub(c.Started) < delay {
		t.Errorf("applied %s after the start, want %s or more", c.Applied.Sub(c.Started), delay)
	}
	stop()
	s.Delay(registrytest.Match{}, time.Hour)
	short, cancel := context.WithTimeout(s.ctx, time.Millisecond)
	defer cancel()
	s.expect("Deregister", s.Deregister(short, web("a")), context.DeadlineExceeded)
	s.expectKnown("a")
}

func TestFakeTellsBeforeTheCallerGetsTheAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var told []registrytest.Call
	stop := s.OnAnswer(registrytest.Match{Op: registrytest.OpRegister}, func(c registrytest.Call) {
		told = append(told, c)
		s.expectKnown("a") // a listener may use the fake
	})
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), nil)
	stop()
	s.expect("Register again", s.Register(s.ctx, web("a")), nil)
	if len(told) != 1 || told[0].Op != registrytest.OpRegister || !told[0].Acknowledged() {
		t.Errorf("told of %+v, want the first Register alone", told)
	}
}

func TestFakeAwaits(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	two := func(calls []registrytest.Call) bool { return len(calls) == 2 && calls[1].Acknowledged() }
	done := inBackground(func() error { return s.Await(s.ctx, registrytest.Match{Pod: "a"}, two) })
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	s.expect("Register of another", s.Register(s.ctx, web("b")), nil)
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), nil)
	s.expect("Await", done(), nil)

	cancelled, cancel := context.WithCancel(s.ctx)
	cancel()
	s.expect("Await in vain", s.Await(cancelled, registrytest.Match{Pod: "c"}, two), context.Canceled)
}

func TestFakeResets(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	late := s.LandLate(registrytest.Match{Op: registrytest.OpDeregister}, 2)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	short, cancel := context.WithTimeout(s.ctx, time.Millisecond)
	defer cancel()
	s.expect("Deregister", s.Deregister(short, web("a")), context.DeadlineExceeded)
	hold := s.Hold(registrytest.Match{Op: registrytest.OpFailOver})
	held := inBackground(func() error { return s.FailOver(s.ctx, web("b")) })
	if err := hold.AwaitReached(s.ctx, 1); err != nil {
		t.Fatal(err)
	}
	s.Fail(registrytest.Match{Op: registrytest.OpRegister}, errPassing)
	s.OnAnswer(registrytest.Match{Op: registrytest.OpList}, func(registrytest.Call) { t.Error("a listener outlived the reset") })

	s.Reset()
	s.expect("held call", held(), nil)
	late.Release()
	s.expectKnown("a") // the late Deregister is dropped
	if c := s.Calls(registrytest.Match{}); len(c) != 0 {
		t.Errorf("journal after the reset: %+v, want nothing", c)
	}
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	if _, err := s.List(s.ctx, "test"); err != nil {
		t.Error(err)
	}
	s.expect("Deregister", s.Deregister(s.ctx, web("a")), nil)
	s.expectKnown()
}

func TestFakeReplacesItsBackend(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	s.Replace(newMemory(t))
	s.expectKnown()
	s.expect("Register", s.Register(s.ctx, web("b")), nil)
	s.expectKnown("b")
}
