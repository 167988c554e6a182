package fakeregistry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
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
	*fakeregistry.Registry
	t   *testing.T
	ctx context.Context
}

func newScene(t *testing.T) scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), everything)
	t.Cleanup(cancel)
	return scene{Registry: fakeregistry.New(fakeregistry.Memory(t.Context())), t: t, ctx: ctx}
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
	expect.NoError(s.t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Pod)
	}
	if diff := cmp.Diff(pods, got); diff != "" {
		s.t.Errorf("the backend's pods, -want +got:\n%s", diff)
	}
}

func TestRegistryWritesDownEveryCall(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.FailNext(fakeregistry.Match{Op: fakeregistry.OpFailOver}, errPassing)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), errPassing)
	if _, err := s.List(s.ctx, "test"); err != nil {
		t.Errorf("List: %v", err)
	}
	calls := s.Calls(fakeregistry.Match{})
	if len(calls) != 3 {
		t.Fatalf("journal: got %d calls, want 3: %+v", len(calls), calls)
	}
	for i, want := range []struct {
		op       fakeregistry.Op
		instance registry.Instance
		err      error
		applied  bool
	}{
		{fakeregistry.OpRegister, web("a"), nil, true},
		{fakeregistry.OpFailOver, web("a"), errPassing, false},
		{fakeregistry.OpList, registry.Instance{Cluster: "test"}, nil, true},
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

func TestRegistryMatches(t *testing.T) {
	t.Parallel()
	call := fakeregistry.Call{Op: fakeregistry.OpRegister, Instance: web("a")}
	for match, want := range map[fakeregistry.Match]bool{
		{}:                             true,
		{Op: fakeregistry.OpRegister}:  true,
		{Op: fakeregistry.OpFailOver}:  false,
		{Service: "db"}:                false,
		{Namespace: "staging"}:         false,
		{Pod: "b"}:                     false,
		{Pod: "a", UID: "uid-b"}:       false,
		{Service: "web", UID: "uid-a"}: true,
		{Namespace: "shop", Pod: "a"}:  true,
	} {
		if got := match.Matches(call); got != want {
			t.Errorf("%+v matches %+v: got %t, want %t", match, call, got, want)
		}
	}
}

func TestRegistryHandsOutErrorsInTurnBeforeStandingOnes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	first, second, standing := errors.New("first"), errors.New("second"), errors.New("standing")
	s.FailNext(fakeregistry.Match{Op: fakeregistry.OpRegister}, first, second)
	stop := s.Fail(fakeregistry.Match{}, standing)

	s.expect("1st Register", s.Register(s.ctx, web("a")), first)
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), standing)
	s.expect("2nd Register", s.Register(s.ctx, web("a")), second)
	s.expect("3rd Register", s.Register(s.ctx, web("a")), standing)
	s.expectKnown()
	stop()
	s.expect("4th Register", s.Register(s.ctx, web("a")), nil)
	s.expectKnown("a")
}

func TestRegistryLosesAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.LoseAnswers(fakeregistry.Match{}, 2, errPassing)
	s.expect("Register", s.Register(s.ctx, web("a")), errPassing)
	s.expectKnown("a")
	s.expect("Deregister", s.Deregister(s.ctx, web("a")), errPassing)
	s.expectKnown()
	s.expect("Register again", s.Register(s.ctx, web("a")), nil)
}

func TestRegistryHoldsCalls(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hold := s.Hold(fakeregistry.Match{Pod: "a"})
	held := inBackground(func() error { return s.Register(s.ctx, web("a")) })
	expect.NoError(t, hold.AwaitReached(s.ctx, 1))
	s.expectKnown()
	if c := s.Calls(fakeregistry.Match{}); len(c) != 1 || !c[0].Answered.IsZero() {
		t.Errorf("journal while the call is held: %+v, want one call with no answer", c)
	}

	impatient, cancel := context.WithCancel(s.ctx)
	gone := inBackground(func() error { return s.Deregister(impatient, web("a")) })
	expect.NoError(t, hold.AwaitReached(s.ctx, 2))
	cancel()
	s.expect("call that gave up", gone(), context.Canceled)

	hold.Release()
	hold.Release() // does nothing
	s.expect("held call", held(), nil)
	s.expectKnown("a")
	s.expect("call after the release", s.Deregister(s.ctx, web("a")), nil)
	s.expectKnown()
}

func TestRegistryLandsWorkAfterItsCallerGaveUp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	late := s.LandLate(fakeregistry.Match{Op: fakeregistry.OpDeregister}, 1)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)

	short, cancel := context.WithTimeout(s.ctx, time.Millisecond)
	defer cancel()
	s.expect("Deregister", s.Deregister(short, web("a")), context.DeadlineExceeded)
	s.expectKnown("a")

	late.Release()
	s.expectKnown()
	c := s.Calls(fakeregistry.Match{Op: fakeregistry.OpDeregister})
	if len(c) != 1 || !c[0].Applied.After(c[0].Answered) || c[0].Acknowledged() {
		t.Errorf("journal: %+v, want one call that was applied after it was answered, with an error", c)
	}
}

func TestRegistryTellsBeforeTheCallerGetsTheAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var told []fakeregistry.Call
	stop := s.OnAnswer(fakeregistry.Match{Op: fakeregistry.OpRegister}, func(c fakeregistry.Call) {
		told = append(told, c)
		s.expectKnown("a") // a listener may use the fake
	})
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), nil)
	stop()
	s.expect("Register again", s.Register(s.ctx, web("a")), nil)
	if len(told) != 1 || told[0].Op != fakeregistry.OpRegister || !told[0].Acknowledged() {
		t.Errorf("told of %+v, want the first Register alone", told)
	}
}
