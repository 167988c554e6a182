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
			why:   "after a change of leader, the entries must not expire with the previous leader's lease",
			needs: []Capability{isHeartbeater, hasShortLease},
			run:   heartbeatTakesOver,
		},
		{
			name: "HeartbeatOfUnknown",
			why:  "a heartbeat that succeeds or makes an entry hides that the registry has lost it",
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
			why:  "a dead pod's late heartbeat must not renew the entry of the pod that was given its address",
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
			why:  "a heartbeat comes in the middle of an update; it must not put the pod back into rotation",
			run:  heartbeatKeepsOutOfService,
		},
		{
			name: "HeartbeatOfFormerProcess",
			why:  "the next leader renews what the previous one registered; that must work, or return registry.NotRegistered",
			run: func(w *world) {
				w.registered(w.pod(1))
				next := w.newProcess()
				w.beatOrRegister(next, w.pod(1))
				w.expect(inService(w.pod(1)))
			},
		},
		{
			name: "HeartbeatRacesWithTheEnd",
			why:  "a heartbeat that is under way when the pod is taken out must not bring it back",
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
	if err := w.call(opHeartbeat, d, in); registry.CodeOf(err) != registry.CodeNotRegistered {
		w.Fatalf("Heartbeat of %s: got error %v, want registry.NotRegistered", show(in), err)
	}
}

// beatOrRegister does what Rollcall does with a process's first heartbeat, after which this process must be able to renew the entry.
func (w *world) beatOrRegister(d registry.Registry, in registry.Instance) {
	w.Helper()
	err := w.call(opHeartbeat, d, in)
	if err == nil {
		return
	}
	if registry.CodeOf(err) != registry.CodeNotRegistered {
		w.Fatalf("Heartbeat of %s: got error %v, want none or registry.NotRegistered", show(in), err)
	}
	w.register(d, in)
	w.expectBeat(d, in)
}

// heartbeatKeepsEntry has two processes with the shortest lease. One renews its entries, the other dies: once the entry of
// the second has gone, more time has passed than a lease lasts.
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

// heartbeatTakesOver has a process that dies with two entries: the next process takes over one of them.
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
	interval := registry.TraitsOf(d).HeartbeatInterval / 2
	for {
		for _, in := range renewed {
			w.expectBeat(d, in)
		}
		if !slices.ContainsFunc(w.read(read, w.cluster), func(e registry.Entry) bool { return e.UID == lost.UID }) {
			return
		}
		if sleep(ctx, interval) != nil {
			w.Fatalf("%s is still there after %s, although nothing renews it", show(lost), w.h.patience().lease)
		}
	}
}

func heartbeatKeepsOutOfService(w *world) {
	d := w.registered(w.pod(1))
	w.failOver(d, w.pod(1))
	for _, process := range []registry.Registry{d, d, w.newProcess()} {
		err := w.call(opHeartbeat, process, w.pod(1))
		if err != nil && registry.CodeOf(err) != registry.CodeNotRegistered {
			w.Fatalf("Heartbeat: got error %v, want none or registry.NotRegistered", err)
		}
		w.expect(outOfService(w.pod(1)))
	}
}

// heartbeatRacesWithTheEnd has a heartbeat race with each of the calls after which it must do nothing, shifted against each other
// from round to round. The outcome of the heartbeat does not matter.
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
