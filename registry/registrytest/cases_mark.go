package registrytest

import (
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// markCases are about two pods at one address.
func markCases() []testCase {
	return []testCase{
		{
			name: "LateDeregisterSparesLivePod",
			why:  "addresses are reused within seconds; the dead pod's late removal would take the live one out",
			run:  func(w *world) { lateCallSpares(w, opDeregister) },
		},
		{
			name: "LateFailOverSparesLivePod",
			why:  "addresses are reused within seconds; the dead pod's late FailOver would take the live one out",
			run:  func(w *world) { lateCallSpares(w, opFailOver) },
		},
		{
			name: "RegisterTakesOverAddress",
			why:  "the pod that has the address now is the one that answers there, whatever its predecessor left behind",
			run: func(w *world) {
				dead := w.pod(1)
				w.registered(dead)
				d := w.registered(heir(dead))
				w.expect(inService(heir(dead)))
				w.deregister(d, heir(dead))
				w.expect()
			},
		},
		{
			name: "OtherUIDIsNeverRemoved",
			why:  "only the whole UID tells two pods apart: neither the same name nor a similar UID does",
			run:  otherUIDIsNeverRemoved,
		},
		{
			name: "ClusterUIDIsKept",
			why:  "two clusters can have the same name; without the UID a person must decide whose entries are removed",
			run:  clusterUIDIsKept,
		},
		{
			name:  "AnotherRegistrysEntryIsSpared",
			why:   "two names in the configuration can be of one server: a pod that moves from one to the other would be removed",
			needs: []Capability{EachApart},
			run:   anotherRegistrysEntryIsSpared,
		},
		{
			name:  "AnotherRegistrysEntryIsSparedInABatch",
			why:   "two names in the configuration can be of one server: a pod that moves from one to the other would be removed",
			needs: []Capability{isBatcher},
			run:   anotherRegistrysEntryIsSparedInABatch,
		},
		{
			name:  "GetSeesNoOtherRegistrysEntry",
			why:   "a removal that has spared the entry would never be confirmed",
			needs: []Capability{isGetter},
			run:   getSeesNoOtherRegistrysEntry,
		},
	}
}

// clusterUIDIsKept begins with the entry of a version that wrote no such UID.
func clusterUIDIsKept(w *world) {
	before := w.pod(1)
	now := before
	now.ClusterUID = "0e9a53f0-6a0b-4f0e-9a53-0d0a1c9d7b11"
	d := w.registered(before)
	w.expect(inService(before))
	w.register(d, now)
	w.expect(inService(now))
	w.failOver(d, now)
	w.expect(outOfService(now))
}

// under returns the instance as the configuration's registry of this name has it.
func under(name string, in registry.Instance) registry.Instance {
	in.Registry = name
	return in
}

// anotherRegistrysEntryIsSpared moves a pod from one name of the registry to another.
func anotherRegistrysEntryIsSpared(w *world) {
	d := w.newProcess()
	before, now, unnamed := under("old", w.pod(1)), under("new", w.pod(1)), w.pod(1)
	w.register(d, before)
	w.expect(inService(before))
	w.register(d, now)
	w.expect(inService(now))
	for _, late := range []operation{opDeregister, opFailOver} {
		w.must(late, d, before)
		w.must(late, w.newProcess(), before)
	}
	w.expect(inService(now))
	w.register(d, before) // back again
	w.must(opDeregister, w.newProcess(), now)
	w.expect(inService(before))

	// A call without a registry's name is for the entry of any, and an entry without one is the caller's.
	w.deregister(d, unnamed)
	w.expect()
	w.register(d, unnamed)
	w.expect(inService(unnamed))
	w.deregister(d, now)
	w.expect()
	w.register(d, now)
	w.deregister(d, now)
	w.expect()
}

func anotherRegistrysEntryIsSparedInABatch(w *world) {
	d := w.registered(under("new", w.pod(1)), under("new", w.pod(2)), under("old", w.pod(3)))
	w.batch(d,
		registry.Change{Instance: under("old", w.pod(1)), State: registry.Absent},
		registry.Change{Instance: under("old", w.pod(2)), State: registry.OutOfService},
		registry.Change{Instance: under("old", w.pod(3)), State: registry.Absent},
	)
	w.expect(inService(under("new", w.pod(1))), inService(under("new", w.pod(2))))
}

func getSeesNoOtherRegistrysEntry(w *world) {
	d := w.registered(under("new", w.pod(1)))
	w.expectSays(d, under("old", w.pod(1)), registry.Absent)
	w.expectSays(d, under("new", w.pod(1)), registry.InService)
	w.expectSays(d, w.pod(1), registry.InService)
}

func lateCallSpares(w *world, late operation) {
	dead := w.pod(1)
	live := heir(dead)
	d := w.registered(dead, live)
	w.must(late, d, dead)
	w.must(late, w.newProcess(), dead)
	w.expect(inService(live))

	w.failOver(d, live)
	w.must(late, w.newProcess(), dead)
	w.expect(outOfService(live))
}

func otherUIDIsNeverRemoved(w *world) {
	live := w.pod(1)
	w.registered(live)
	for _, uid := range []string{
		live.UID + "0", live.UID[:len(live.UID)-1], strings.ToUpper(live.UID), " " + live.UID, "*", "%", "00000000",
	} {
		stranger := live // of the same name, as a StatefulSet's next pod is
		stranger.UID = uid
		for _, op := range []operation{opFailOver, opDeregister} {
			w.must(op, w.newProcess(), stranger)
		}
		w.expect(inService(live))
	}
	// No pod has the UID "": a driver may refuse it, but must not take it for every pod's.
	unmarked := live
	unmarked.UID = ""
	for _, op := range []operation{opFailOver, opDeregister} {
		_ = w.call(op, w.newProcess(), unmarked)
	}
	w.expect(inService(live))
}
