package registrytest

import (
	"context"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// heartbeatCases are about registry.Heartbeater.
func heartbeatCases() []testCase {
	return needing([]testCase{
		{
			name:  "HeartbeatKeepsEntry",
			why:   "an entry that expires although it is renewed takes a healthy pod out of rotation",
			needs: []Capability{isHeartbeater, hasShortLease},
			run:   heartbeatKeepsEntry,
		},
		{
			name:  "HeartbeatTakesOver",
			why:   "after a change of the leader the entries must not end with the lease of the one before",
			needs: []Capability{isHeartbeater, hasShortLease},
			run:   heartbeatTakesOver,
		},
		{
			name: "HeartbeatOfUnknown",
			why:  "a beat that says all is well, or makes an entry by itself, hides that the registry has lost it",
			run: func(w *world) {
				d := w.newProcess()
				w.expectNotRegistered(d, w.pod(1))
				w.register(d, w.pod(2))
				w.expectBeat(d, w.pod(2))
				w.deregister(d, w.pod(2))
				w.expectNotRegistered(d, w.pod(2))
				w.expectNotRegistered(w.newProcess(), w.pod(2))
				w.expect()
			},
		},
		{
			name: "HeartbeatOfAnotherUID",
			why:  "a dead pod's late beat must not speak for the pod that was given its address",
			run: func(w *world) {
				d := w.newProcess()
				dead := w.pod(1)
				w.register(d, dead, heir(dead))
				w.expectNotRegistered(d, dead)
				w.expectNotRegistered(w.newProcess(), dead)
				w.expectBeat(d, heir(dead))
				w.expect(inService(heir(dead)))
			},
		},
		{
			name: "HeartbeatKeepsOutOfService",
			why:  "a beat comes in the middle of an update; it must not put the pod back into rotation",
			run:  heartbeatKeepsOutOfService,
		},
		{
			name: "HeartbeatOfFormerProcess",
			why:  "the next leader beats for what the one before registered; that works, or it says what is missing",
			run: func(w *world) {
				w.registered(w.pod(1))
				next := w.newProcess()
				w.beatOrRegister(next, w.pod(1))
				w.expect(inService(w.pod(1)))
			},
		},
		{
			name: "HeartbeatRacesWithTheEnd",
			why:  "a beat that is on its way when the pod is taken out must not bring it back",
			run:  heartbeatRacesWithTheEnd,
		},
	}, isHeartbeater)
}

func (w *world) expectBeat(d registry.Registry, in registry.Instance) {
	w.Helper()
	w.must(opHeartbeat, d, in)
}

func (w *world) expectNotRegistered(d registry.Registry, in registry.Instance) {
	w.Helper()
	if err := w.call(opHeartbeat, d, in); !registry.IsNotRegistered(err) {
		w.Fatalf("Heartbeat of %s: got error %v, want one that says not registered", show(in), err)
	}
}

// beatOrRegister does what Rollcall does with a process's first beat, and wants the entry to be this process's then.
func (w *world) beatOrRegister(d registry.Registry, in registry.Instance) {
	w.Helper()
	err := w.call(opHeartbeat, d, in)
	if err == nil {
		return
	}
	if !registry.IsNotRegistered(err) {
		w.Fatalf("Heartbeat of %s: got error %v, want none or one that says not registered", show(in), err)
	}
	w.register(d, in)
	w.expectBeat(d, in)
}

// heartbeatKeepsEntry has two processes with the shortest lease. One renews its entries, the other dies: when its entry
// has gone, more time has passed than a lease lasts.
func heartbeatKeepsEntry(w *world) {
	d := w.opened(w.h.ShortLease(w.TB, w.cluster))
	dying, die := w.mortal(w.h.ShortLease)
	kept, out, lost := w.pod(1), w.pod(2), w.pod(3)
	w.register(dying, lost)
	w.register(d, kept, out)
	w.failOver(d, out)
	die()
	renewed := []registry.Instance{kept}
	if !w.h.lacks(OutOfServiceState) {
		renewed = append(renewed, out)
	}
	w.beatUntilGone(d, lost, renewed)
	w.expect(inService(kept), outOfService(out))
	w.expectNotRegistered(d, lost)
	w.expect(inService(kept), outOfService(out))
}

// heartbeatTakesOver has a process die whose entry the next one takes over, and another that no process takes over.
func heartbeatTakesOver(w *world) {
	dying, die := w.mortal(w.h.ShortLease)
	kept, lost := w.pod(1), w.pod(2)
	w.register(dying, kept, lost)
	next := w.opened(w.h.ShortLease(w.TB, w.cluster))
	w.beatOrRegister(next, kept)
	die()
	w.beatUntilGone(next, lost, []registry.Instance{kept})
	w.expect(inService(kept))
}

// beatUntilGone renews the entries, twice as often as they need it, until the one that is not renewed has gone.
func (w *world) beatUntilGone(d registry.Registry, lost registry.Instance, renewed []registry.Instance) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), w.h.patience().lease)
	defer cancel()
	read, _ := w.reader()
	interval := d.(registry.Heartbeater).HeartbeatInterval() / 2
	for {
		for _, in := range renewed {
			w.expectBeat(d, in)
		}
		if !slices.ContainsFunc(w.read(read, w.cluster), func(e registry.Entry) bool { return e.UID == lost.UID }) {
			return
		}
		if sleep(ctx, interval) != nil {
			w.Fatalf("%s is still there after %s, though it is not renewed", show(lost), w.h.patience().lease)
		}
	}
}

func heartbeatKeepsOutOfService(w *world) {
	d := w.registered(w.pod(1))
	w.failOver(d, w.pod(1))
	for _, process := range []registry.Registry{d, d, w.newProcess()} {
		err := w.call(opHeartbeat, process, w.pod(1))
		if err != nil && !registry.IsNotRegistered(err) {
			w.Fatalf("Heartbeat: got error %v, want none or one that says not registered", err)
		}
		w.expect(outOfService(w.pod(1)))
	}
}

// heartbeatRacesWithTheEnd has a beat race with each of the calls that end what it is for, shifted against each other
// round by round. How the beat itself ends is of no matter.
func heartbeatRacesWithTheEnd(w *world) {
	d, other := w.newProcess(), w.newProcess()
	var want []registry.Entry
	for i := range races {
		in := w.pod(i)
		w.register(d, in)
		end, ended := opDeregister, in
		switch i % 3 {
		case 1:
			end = opFailOver
			want = append(want, outOfService(in))
		case 2:
			end, ended = opRegister, heir(in)
			want = append(want, inService(heir(in)))
		}
		w.race(i/3, func() error {
			_ = w.callErr(opHeartbeat, d, in)
			return nil
		}, func() error { return w.callErr(end, []registry.Registry{d, other}[i%2], ended) })
	}
	w.expect(want...)
}
