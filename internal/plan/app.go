package plan

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// What differs for entries that applications write: they can be at each of the pod's addresses, their absence proves nothing until somebody
// saw them, and another pod's application can have the endpoint by now.

// AddressesOf are where the application's entry can be. A pod is called at its own IP only: what answers at its node is not the pod's.
func (f Facts) AddressesOf(in lifecycle.Key) []string {
	all := lifecycle.AddressesOf(f.Pod, in.Port)
	if f.Configuration.CallsPods(in.Registry) {
		return all[:min(1, len(all))]
	}
	return all
}

// passedOn reports whether there is nothing left to take out: another pod's application has the endpoint, or the application that
// would be called has ended. Nothing else may answer in its stead, at an address that the pod does not have, or has no more.
func (e entry) passedOn(want lifecycle.Want) bool {
	if !e.in.ByApp() || want == lifecycle.InService || !e.Configuration.CallsPods(e.in.Registry) {
		return e.PassedOn[e.in]
	}
	if e.Gone || e.in.Address != lifecycle.AddressOf(e.Pod) {
		return true
	}
	// What it has acknowledged stays known, in case a container starts again.
	return !lifecycle.Runs(e.Pod, e.in.Port) && (!e.known.Stands(want) || e.known.PassedOn())
}

// LastFound moves an application's instance to the address where its entry was last found, by this process or else the record.
func (f Facts) LastFound(in lifecycle.Key) lifecycle.Key {
	if !in.ByApp() {
		return in
	}
	at, latest, recorded := in, time.Time{}, false
	for _, in.Address = range f.AddressesOf(in) {
		e := f.entry(in)
		switch seen := e.known.SeenAt; {
		case seen.After(latest), seen.Equal(latest) && !seen.IsZero() && !e.known.Missing:
			at, latest = in, seen
		case latest.IsZero() && !recorded && e.recordFound():
			at, recorded = in, true
		}
	}
	return at
}

// recordFound reports whether the record has found it.
func (e entry) recordFound() bool {
	unfound := func(r lifecycle.Key) bool { return e.named(r) == e.in }
	return e.isRecorded() && !slices.ContainsFunc(e.Record.Unfound, unfound)
}

// Unseen reports whether nobody saw the application's entry, nor one where the pod belonged before: its absence acknowledges nothing.
func (f Facts) Unseen(in lifecycle.Key) bool {
	saw := func(in lifecycle.Key) bool { // this process, or the record's writer
		e := f.entry(in)
		return !e.known.SeenAt.IsZero() || e.recordFound()
	}
	return in.ByApp() && !saw(in) && !slices.ContainsFunc(f.others(), saw)
}

// leftToApp reports whether clients may be given an application's entry there: the pod's own, or one at an address that the pod lost.
func (e entry) leftToApp(want lifecycle.Want) bool {
	if want == lifecycle.Absent && !e.Has(e.in) && (e.Gone || e.Pod.Status.PodIP != "") {
		return true
	}
	return want != lifecycle.InService && e.IsTarget(e.in.By(lifecycle.Application))
}

// mustBeSeen reports whether the registry must be asked for an application's entry before it counts as out. A pod that never was ready is
// left to its application unless it goes. If the pod has several addresses, the entry can be at each: it is looked for while none was
// found, and again once it has gone.
func (e entry) mustBeSeen(want lifecycle.Want) bool {
	if want == lifecycle.InService || !e.in.ByApp() || !e.IsTarget(e.in) {
		return false
	}
	several := len(e.AddressesOf(e.in)) > 1
	left := !lifecycle.WasReady(e.Pod) && !lifecycle.RolloutWaits(e.Pod)
	return several && e.known.Missing || !left && (e.Unseen(e.in) || several && e.known.SeenAt.IsZero())
}
