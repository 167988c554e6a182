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
	if len(all) > 1 && f.Configuration.CallsPods(in.Registry) {
		return all[:1]
	}
	return all
}

// passedOn reports whether there is nothing left to take out: another pod's application has the endpoint, or the application that
// would be called has ended. Nothing else may answer in its stead, at an address that the pod does not have, or has no more.
func (f Facts) passedOn(in lifecycle.Key, want lifecycle.Want) bool {
	if !in.ByApp() || want == lifecycle.InService || !f.Configuration.CallsPods(in.Registry) {
		return f.PassedOn[in]
	}
	if f.Gone || in.Address != lifecycle.AddressOf(f.Pod) {
		return true
	}
	known := f.Known.Of(in) // what it has acknowledged stays known, in case a container starts again
	return !lifecycle.Runs(f.Pod, in.Port) && (!known.Stands(want) || known.PassedOn())
}

// LastFound moves an application's instance to the address where its entry was last found, by this process or else the record.
func (f Facts) LastFound(in lifecycle.Key) lifecycle.Key {
	if !in.ByApp() {
		return in
	}
	at, latest, recorded := in, time.Time{}, false
	for _, in.Address = range f.AddressesOf(in) {
		known := f.Known.Of(in)
		switch seen := known.SeenAt(); {
		case seen.After(latest), seen.Equal(latest) && !seen.IsZero() && !known.Missing():
			at, latest = in, seen
		case latest.IsZero() && !recorded && f.recordFound(in):
			at, recorded = in, true
		}
	}
	return at
}

// recordFound reports whether the record has found it.
func (f Facts) recordFound(in lifecycle.Key) bool {
	unfound := func(r lifecycle.Key) bool { return f.named(r) == in }
	return f.isRecorded(in) && !slices.ContainsFunc(f.Record.Unfound, unfound)
}

// saw reports whether this process or the record's writer found the application's entry.
func (f Facts) saw(in lifecycle.Key) bool {
	return !f.Known.Of(in).SeenAt().IsZero() || f.recordFound(in)
}

// Unseen reports whether nobody saw the application's entry, nor one where the pod belonged before: its absence acknowledges nothing.
func (f Facts) Unseen(in lifecycle.Key) bool {
	if !in.ByApp() || f.saw(in) {
		return false
	}
	return !slices.ContainsFunc(f.others(), f.saw)
}

// leftToApp reports whether clients may be given an application's entry there: the pod's own, or one at an address that the pod lost.
func (f Facts) leftToApp(in lifecycle.Key, want lifecycle.Want) bool {
	if want == lifecycle.Absent && !f.Has(in) && (f.Gone || f.Pod.Status.PodIP != "") {
		return true
	}
	return want != lifecycle.InService && f.IsTarget(in.By(lifecycle.Application))
}

// mustBeSeen reports whether the registry must be asked for an application's entry before it counts as out. A pod that never was ready is
// left to its application unless it goes. If the pod has several addresses, the entry can be at each: it is looked for while none was
// found, and again once it has gone.
func (f Facts) mustBeSeen(in lifecycle.Key, want lifecycle.Want) bool {
	if want == lifecycle.InService || !in.ByApp() || !f.IsTarget(in) {
		return false
	}
	several := len(f.AddressesOf(in)) > 1
	left := !lifecycle.WasReady(f.Pod) && !lifecycle.RolloutWaits(f.Pod)
	known := f.Known.Of(in)
	return several && known.Missing() || !left && (f.Unseen(in) || several && known.SeenAt().IsZero())
}
