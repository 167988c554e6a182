package registrytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// FakeOptions are the capabilities that a driver of a [Fake] has besides those of the Fake itself.
type FakeOptions struct {
	// Prober makes it a [registry.Prober]. It agrees where the backend does, if that is a Prober, else where it holds
	// the instance in service. Faults: FailNext or Fail with Match{Op: OpProbe}.
	Prober bool

	// Heartbeater makes it a [registry.Heartbeater] of this interval. It renews where the backend does, if that is a
	// Heartbeater, else where it holds the instance. Faults: Expire, which loses entries; FailNext or Fail with
	// Match{Op: OpHeartbeat}, for example with an error marked by registry.NotRegistered, which loses the beats.
	Heartbeater       bool
	HeartbeatInterval time.Duration

	// BatchLimit, if above zero, makes it a [registry.Batcher] of this limit. Each change is a call of its own in the
	// journal, with the batch's number in Call.Batch, and meets the faults that such a call meets: so one change can
	// fail, or be answered with registry.NotApplied, while others succeed. Those of one batch are done at once.
	BatchLimit int

	// Staleness is what the driver says as a [registry.StaleLister]; zero is as if it were none. The answers do not lag
	// by themselves: see [Fake.FreezeList].
	Staleness time.Duration
}

// Driver returns the fake as a driver that has exactly the capabilities given, is an io.Closer, a Getter and a StaleLister.
// Several drivers of one fake share its journal and its faults, as processes share a registry.
func (f *Fake) Driver(o FakeOptions) registry.Registry {
	base := fakeDriver{Fake: f, staleness: o.Staleness}
	p := fakeProber{f}
	h := fakeHeartbeater{f: f, interval: o.HeartbeatInterval}
	b := fakeBatcher{f: f, limit: o.BatchLimit}
	type has struct{ prober, heartbeater, batcher bool }
	switch (has{o.Prober, o.Heartbeater, o.BatchLimit > 0}) {
	case has{true, true, true}:
		return struct {
			fakeDriver
			fakeProber
			fakeHeartbeater
			fakeBatcher
		}{base, p, h, b}
	case has{true, true, false}:
		return struct {
			fakeDriver
			fakeProber
			fakeHeartbeater
		}{base, p, h}
	case has{true, false, true}:
		return struct {
			fakeDriver
			fakeProber
			fakeBatcher
		}{base, p, b}
	case has{false, true, true}:
		return struct {
			fakeDriver
			fakeHeartbeater
			fakeBatcher
		}{base, h, b}
	case has{true, false, false}:
		return struct {
			fakeDriver
			fakeProber
		}{base, p}
	case has{false, true, false}:
		return struct {
			fakeDriver
			fakeHeartbeater
		}{base, h}
	case has{false, false, true}:
		return struct {
			fakeDriver
			fakeBatcher
		}{base, b}
	}
	return base
}

var (
	_ registry.StaleLister = fakeDriver{}
	_ io.Closer            = fakeDriver{}
	_ registry.Prober      = fakeProber{}
	_ registry.Heartbeater = fakeHeartbeater{}
	_ registry.Batcher     = fakeBatcher{}
)

type fakeDriver struct {
	*Fake
	staleness time.Duration
}

func (d fakeDriver) Staleness() time.Duration { return d.staleness }

// Close is written down. It leaves the fake as it is, and meets no fault, since no context bounds it.
func (d fakeDriver) Close() error {
	now := time.Now()
	d.update(func() { d.calls = append(d.calls, &Call{Op: OpClose, Started: now, Applied: now, Answered: now}) })
	return nil
}

type fakeProber struct{ f *Fake }

func (p fakeProber) Probe(ctx context.Context, in registry.Instance) error {
	return p.f.call(ctx, OpProbe, in, func(ctx context.Context, b Backend) error {
		if prober, ok := b.(registry.Prober); ok {
			return prober.Probe(ctx, in)
		}
		switch state, err := stateOf(ctx, b, in); {
		case err != nil:
			return err
		case state != registry.InService:
			return fmt.Errorf("%s is %s", show(in), state)
		}
		return nil
	})
}

type fakeHeartbeater struct {
	f        *Fake
	interval time.Duration
}

func (h fakeHeartbeater) HeartbeatInterval() time.Duration { return h.interval }

func (h fakeHeartbeater) Heartbeat(ctx context.Context, in registry.Instance) error {
	return h.f.call(ctx, OpHeartbeat, in, func(ctx context.Context, b Backend) error {
		if heartbeater, ok := b.(registry.Heartbeater); ok {
			return heartbeater.Heartbeat(ctx, in)
		}
		switch state, err := stateOf(ctx, b, in); {
		case err != nil:
			return err
		case state == registry.Absent:
			return registry.NotRegistered(errors.New(show(in) + " is not there"))
		}
		return nil
	})
}

// stateOf returns where the backend has the instance; an entry that it does not own is not this instance's.
func stateOf(ctx context.Context, b Backend, in registry.Instance) (registry.State, error) {
	entries, err := b.List(ctx, in.Cluster)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if sameIdentity(e.Instance, in) && in.Owns(e.UID, e.Registry) {
			return e.State, nil
		}
	}
	return registry.Absent, nil
}

type fakeBatcher struct {
	f     *Fake
	limit int
}

func (b fakeBatcher) BatchLimit() int { return b.limit }

func (b fakeBatcher) Batch(ctx context.Context, changes []registry.Change) []error {
	errs := make([]error, len(changes))
	if len(changes) > b.limit {
		for i := range errs {
			errs[i] = registry.Terminal(fmt.Errorf("a batch of %d changes, at most %d are taken", len(changes), b.limit))
		}
		return errs
	}
	var sound []registry.Change
	var at []int
	for i, c := range changes {
		if errs[i] = c.Check(); errs[i] == nil {
			sound, at = append(sound, c), append(at, i)
		}
	}
	var all sync.WaitGroup
	for i, call := range b.f.beginBatch(sound) {
		all.Go(func() {
			errs[at[i]] = call.do(ctx, func(ctx context.Context, b Backend) error { return sound[i].Make(ctx, b) })
		})
	}
	all.Wait()
	return errs
}

// beginBatch writes the changes down in their order.
func (f *Fake) beginBatch(changes []registry.Change) []begun {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches++
	begin := make([]begun, 0, len(changes))
	for _, c := range changes {
		c.Instance.Metadata = maps.Clone(c.Instance.Metadata)
		begin = append(begin, f.beginLocked(&Call{Op: opOf(c.State), Instance: c.Instance, Batch: f.batches}))
	}
	return begin
}
