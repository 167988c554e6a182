package registrytest

import (
	"strings"
)

// markCases are about two pods at one address.
func markCases() []Case {
	return []Case{
		{
			Name: "LateDeregisterSparesLivePod",
			Why:  "addresses are reused within seconds; the dead pod's late removal would take the live one out",
			run:  func(w *world) { lateCallSpares(w, OpDeregister) },
		},
		{
			Name: "LateFailOverSparesLivePod",
			Why:  "addresses are reused within seconds; the dead pod's late fail over would take the live one out",
			run:  func(w *world) { lateCallSpares(w, OpFailOver) },
		},
		{
			Name: "RegisterTakesOverAddress",
			Why:  "the pod that has the address now is the one that answers there, whatever its predecessor left behind",
			run: func(w *world) {
				dead := w.pod(1)
				w.register(w.newProcess(), dead)
				d := w.newProcess()
				w.register(d, heir(dead))
				w.expect(inService(heir(dead)))
				w.deregister(d, heir(dead))
				w.expect()
			},
		},
		{
			Name: "OtherUIDIsNeverRemoved",
			Why:  "only the whole UID tells two pods apart: the same name is no proof, nor is a UID that looks alike",
			run:  otherUIDIsNeverRemoved,
		},
	}
}

func lateCallSpares(w *world, late Op) {
	dead := w.pod(1)
	live := heir(dead)
	d := w.newProcess()
	w.register(d, dead, live)
	w.must(late, d, dead)
	w.must(late, w.newProcess(), dead)
	w.expect(inService(live))

	w.failOver(d, live)
	w.must(late, w.newProcess(), dead)
	w.expect(outOfService(live))
}

func otherUIDIsNeverRemoved(w *world) {
	live := w.pod(1)
	w.register(w.newProcess(), live)
	for _, uid := range []string{
		live.UID + "0", live.UID[:len(live.UID)-1], strings.ToUpper(live.UID), " " + live.UID, "*", "%", "00000000",
	} {
		stranger := live // of the same name, as a StatefulSet's next pod is
		stranger.UID = uid
		for _, op := range []Op{OpFailOver, OpDeregister} {
			w.must(op, w.newProcess(), stranger)
		}
		w.expect(inService(live))
	}
	// Nobody is called "": a driver may refuse it, and must not take it for everybody.
	unmarked := live
	unmarked.UID = ""
	for _, op := range []Op{OpFailOver, OpDeregister} {
		_ = w.call(op, w.newProcess(), unmarked)
	}
	w.expect(inService(live))
}
