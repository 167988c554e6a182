package registrytest_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// allOfIt asks a fake for every capability.
func allOfIt() registrytest.FakeOptions {
	return registrytest.FakeOptions{
		Prober: true, Heartbeater: true, HeartbeatInterval: time.Minute, BatchLimit: 3, Staleness: time.Second,
	}
}

func (s scene) rich() rich { return s.Driver(allOfIt()).(rich) }

func TestADriverOfAFakeHasWhatItWasGiven(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		o := registrytest.FakeOptions{Prober: i&1 > 0, Heartbeater: i&2 > 0}
		if i&4 > 0 {
			o.BatchLimit = 1
		}
		d := newScene(t).Driver(o)
		_, probes := d.(registry.Prober)
		_, beats := d.(registry.Heartbeater)
		_, batches := d.(registry.Batcher)
		_, closes := d.(io.Closer)
		if probes != o.Prober || beats != o.Heartbeater || batches != (o.BatchLimit > 0) || !closes {
			t.Errorf("%+v: got a Prober: %t, Heartbeater: %t, Batcher: %t, io.Closer: %t", o, probes, beats, batches, closes)
		}
	}
	d := newScene(t).rich()
	got := registrytest.FakeOptions{
		Prober: true, Heartbeater: true,
		HeartbeatInterval: d.HeartbeatInterval(), BatchLimit: d.BatchLimit(), Staleness: d.Staleness(),
	}
	if got != allOfIt() {
		t.Errorf("got a driver of %+v, want of %+v", got, allOfIt())
	}
}

func TestAFakeProbesWhatIsInService(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.rich()
	expectIn := func(when string, in registry.Instance, want bool) {
		t.Helper()
		if err := d.Probe(s.ctx, in); (err == nil) != want {
			t.Errorf("Probe %s: got %v, want agreement: %t", when, err, want)
		}
	}
	expectIn("of an unknown", web("a"), false)
	s.expect("Register", d.Register(s.ctx, web("a")), nil)
	expectIn("after Register", web("a"), true)
	expectIn("of another UID", web("b"), false)
	s.expect("FailOver", d.FailOver(s.ctx, web("a")), nil)
	expectIn("after FailOver", web("a"), false)
	s.expect("Register again", d.Register(s.ctx, web("a")), nil)

	s.FailNext(registrytest.Match{Op: registrytest.OpProbe}, errPassing, errPassing)
	s.expect("1st Probe with a fault", d.Probe(s.ctx, web("a")), errPassing)
	s.expect("2nd Probe with a fault", d.Probe(s.ctx, web("a")), errPassing)
	s.expect("Probe after the faults", d.Probe(s.ctx, web("a")), nil)
	if got := len(s.Calls(registrytest.Match{Op: registrytest.OpProbe})); got != 7 {
		t.Errorf("the journal has %d probes, want 7", got)
	}
}

func TestAFakeSaysWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	expectState := func(when string, in registry.Instance, want registry.State) {
		t.Helper()
		if got, err := s.Get(s.ctx, in); err != nil || got != want {
			t.Errorf("Get %s: got %q, %v; want %q", when, got, err, want)
		}
	}
	expectState("of an unknown", web("a"), registry.Absent)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	expectState("after Register", web("a"), registry.InService)
	expectState("of another UID", web("b"), registry.Absent)
	if _, err := s.FreezeList(s.ctx, "test"); err != nil {
		t.Fatal(err)
	}
	s.expect("FailOver", s.FailOver(s.ctx, web("a")), nil)
	expectState("after FailOver, with a frozen list", web("a"), registry.OutOfService)

	asks := registrytest.Match{Op: registrytest.OpGet}
	s.FailNext(asks, errPassing)
	state, err := s.Get(s.ctx, web("a"))
	if s.expect("Get with a fault", err, errPassing); state != "" {
		t.Errorf("Get with a fault said %q, want nothing", state)
	}
	hold := s.Hold(asks)
	answer := inBackground(func() error {
		_, err := s.Get(s.ctx, web("a"))
		return err
	})
	s.expect("reaching the gate", hold.AwaitReached(s.ctx, 1), nil)
	hold.Release()
	s.expect("Get that was held", answer(), nil)
	if got := len(s.Calls(asks)); got != 6 {
		t.Errorf("the journal has %d Gets, want 6", got)
	}
}

func TestAFakeBeatsForWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.rich()
	expectLost := func(when string, in registry.Instance) {
		t.Helper()
		if err := d.Heartbeat(s.ctx, in); !registry.IsNotRegistered(err) {
			t.Errorf("Heartbeat %s: got %v, want one that says not registered", when, err)
		}
	}
	expectLost("of an unknown", web("a"))
	s.expect("Register", d.Register(s.ctx, web("a")), nil)
	s.expect("Heartbeat", d.Heartbeat(s.ctx, web("a")), nil)
	expectLost("of another UID", web("b"))
	s.expect("FailOver", d.FailOver(s.ctx, web("a")), nil)
	s.expect("Heartbeat while out of service", d.Heartbeat(s.ctx, web("a")), nil)

	before := len(s.Calls(registrytest.Match{}))
	s.expect("Expire", s.Expire(s.ctx, web("b"), web("a")), nil)
	if got := len(s.Calls(registrytest.Match{})); got != before {
		t.Errorf("the journal has %d calls after an expiry, want %d as before", got, before)
	}
	s.expectKnown()
	expectLost("after it expired", web("a"))
	s.expect("Register", d.Register(s.ctx, web("a")), nil)
	s.Fail(registrytest.Match{Op: registrytest.OpHeartbeat}, registry.NotRegistered(errPassing))
	expectLost("that is lost", web("a"))
	s.expectKnown("a")
}

// webAt returns pods at addresses of their own.
func webAt(pods ...string) []registry.Change {
	var changes []registry.Change
	for i, pod := range pods {
		in := web(pod)
		in.Port = 80 + i
		changes = append(changes, registry.Change{Instance: in, State: registry.InService})
	}
	return changes
}

func TestAFakeTakesBatchesApart(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.rich()
	changes := webAt("a", "b", "c")
	s.FailNext(registrytest.Match{Op: registrytest.OpRegister, Pod: "b"}, registry.NotApplied(errPassing))
	errs := d.Batch(s.ctx, changes)
	if len(errs) != 3 || errs[0] != nil || !registry.IsNotApplied(errs[1]) || errs[2] != nil {
		t.Errorf("Batch: got %v, want the second alone not applied", errs)
	}
	s.expectKnown("a", "c")

	changes[0].State, changes[2].State = registry.OutOfService, registry.Absent
	s.expect("second batch", errors.Join(d.Batch(s.ctx, changes)...), nil)
	s.expect("a call of its own", d.Register(s.ctx, changes[2].Instance), nil)
	s.expectKnown("a", "b", "c")
	type call struct {
		Op    registrytest.Op
		Pod   string
		Batch int
	}
	var got []call
	for _, c := range s.Calls(registrytest.Match{}) {
		got = append(got, call{c.Op, c.Instance.Pod, c.Batch})
	}
	want := []call{
		{registrytest.OpRegister, "a", 1}, {registrytest.OpRegister, "b", 1}, {registrytest.OpRegister, "c", 1},
		{registrytest.OpFailOver, "a", 2}, {registrytest.OpRegister, "b", 2}, {registrytest.OpDeregister, "c", 2},
		{registrytest.OpRegister, "c", 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the journal, -want +got:\n%s", diff)
	}
}

func TestAFakeRefusesABatchAboveItsLimit(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	errs := s.rich().Batch(s.ctx, webAt("a", "b", "c", "d"))
	if len(errs) != 4 || slices.ContainsFunc(errs, func(err error) bool { return !registry.IsTerminal(err) }) {
		t.Errorf("Batch of 4 with limit 3: got %v, want four terminal errors", errs)
	}
	s.expectKnown()
}

func TestAFakeHoldsTheChangesOfABatchAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hold := s.Hold(registrytest.Match{})
	changes := webAt("a", "b", "c")
	answer := inBackground(func() error { return errors.Join(s.rich().Batch(s.ctx, changes)...) })
	if err := hold.AwaitReached(s.ctx, 3); err != nil {
		t.Fatal(err)
	}
	clear(changes) // the caller's slice is the caller's
	hold.Release()
	s.expect("Batch", answer(), nil)
	s.expectKnown("a", "b", "c")
}

func TestAFakeFreezesItsList(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	thaw, err := s.FreezeList(s.ctx, "test")
	if err != nil {
		t.Fatal(err)
	}
	s.expect("Deregister", s.Deregister(s.ctx, web("a")), nil)
	expectListed := func(want int) {
		t.Helper()
		if got, err := s.List(s.ctx, "test"); err != nil || len(got) != want {
			t.Errorf("List: got %v, %v; want %d entries", got, err, want)
		}
	}
	expectListed(1)
	s.expectKnown()
	thaw()
	expectListed(0)

	if _, err = s.FreezeList(s.ctx, "test"); err != nil {
		t.Fatal(err)
	}
	s.expect("Register", s.Register(s.ctx, web("a")), nil)
	expectListed(0)
	s.Reset()
	expectListed(1)
}

func TestAFakeWritesDownThatItWasClosed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.Fail(registrytest.Match{}, errPassing)
	s.Hold(registrytest.Match{Op: registrytest.OpClose})
	s.expect("Close", s.rich().Close(), nil) // a fault would hang it: no context bounds it
	if c := s.Calls(registrytest.Match{Op: registrytest.OpClose}); len(c) != 1 || !c[0].Acknowledged() {
		t.Errorf("the journal has %+v, want one Close", c)
	}
}

// TestTheJournalIsItsOwn has a caller use its metadata again.
func TestTheJournalIsItsOwn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	in := web("a")
	in.Metadata = map[string]string{"version": "v1"}
	s.expect("Register", s.Register(s.ctx, in), nil)
	s.expect("Batch", errors.Join(s.rich().Batch(s.ctx, []registry.Change{{Instance: in, State: registry.OutOfService}})...), nil)
	in.Metadata["version"] = "v2"
	for _, c := range s.Calls(registrytest.Match{}) {
		if got := c.Instance.Metadata["version"]; got != "v1" {
			t.Errorf("the journal says version %q of %s, want v1", got, c.Op)
		}
	}
}

// TestAFakeAsksABackendThatCan has the backend's own probe and heartbeat count.
func TestAFakeAsksABackendThatCan(t *testing.T) {
	t.Parallel()
	fake := registrytest.NewFake(capable{newMemory(t)})
	d := fake.Driver(allOfIt()).(rich)
	if err := d.Probe(t.Context(), web("a")); !errors.Is(err, errPassing) {
		t.Errorf("Probe: got %v, want the backend's answer", err)
	}
	if err := d.Heartbeat(t.Context(), web("a")); !errors.Is(err, errPassing) {
		t.Errorf("Heartbeat: got %v, want the backend's answer", err)
	}
	if _, err := fake.Get(t.Context(), web("a")); !errors.Is(err, errPassing) {
		t.Errorf("Get: got %v, want the backend's answer", err)
	}
}

type capable struct{ registrytest.Backend }

func (capable) Probe(context.Context, registry.Instance) error     { return errPassing }
func (capable) Heartbeat(context.Context, registry.Instance) error { return errPassing }
func (capable) Get(context.Context, registry.Instance) (registry.State, error) {
	return registry.InService, errPassing
}
func (capable) HeartbeatInterval() time.Duration { return time.Hour }
