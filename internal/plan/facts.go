package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// Facts are what a pod's rows rest on: values, which nothing changes.
type Facts struct {
	Pod    *corev1.Pod
	Record lifecycle.Record
	// Gone: nothing is left of the pod but its entries.
	Gone bool
	// Owner is the mark of the pod's entries.
	Owner registry.Instance
	// Targets are where the pod belongs. Undescribed: its description does not tell all of these.
	Targets     []tracker.Target
	Undescribed bool
	// PassedOn are entries that other pods' applications have by now.
	PassedOn map[lifecycle.Key]bool
	// Configuration is what is in force.
	Configuration Configuration
	// Known is what this process knows of the entries.
	Known tracker.Known
}

// Configuration tells which registries there are.
type Configuration interface {
	Has(registry string) bool
}

// Target marks an instance as this pod's, whatever a record says. It names no registry: what takes the instance out holds
// for the pod's entry under whichever name of the registry that was written.
func (f Facts) Target(in lifecycle.Key) tracker.Target {
	t := tracker.Target{Registry: in.Registry, Writer: in.Writer, Instance: f.Owner}
	t.Instance.Service, t.Instance.Address, t.Instance.Port = in.Service, in.Address, in.Port
	return t
}

// named returns an instance under the name that its registry has by now, by the entries that were found.
func (f Facts) named(in lifecycle.Key) lifecycle.Key {
	if !f.Configuration.Has(in.Registry) {
		in.Registry = f.Known.Renamed(in.Registry)
	}
	return in
}

// Instances are those that this process knows of, or that the record names, in one order. A tenant can write a record, and what an
// application wrote carries no mark that would spare it: there the record counts for the pod's addresses alone.
func (f Facts) Instances() (all []lifecycle.Key) {
	for in := range f.Known.All() {
		all = append(all, f.named(in))
	}
	for _, in := range f.Record.Instances {
		if !in.ByApp() || f.reaches(in) {
			all = append(all, f.named(in))
		}
	}
	slices.SortFunc(all, lifecycle.Key.Compare)
	return slices.Compact(all)
}

// OfRecord are the targets that the record has in a registry, with their weight and metadata where the pod still has them.
func (f Facts) OfRecord() (recorded []tracker.Target) {
	if f.Record.Want == lifecycle.Absent {
		return nil
	}
	for _, in := range f.Record.Instances {
		in = f.named(in)
		t := f.Target(in)
		if i := f.target(in); i >= 0 {
			t = f.Targets[i]
		}
		recorded = append(recorded, t)
	}
	return recorded
}

func (f Facts) target(in lifecycle.Key) int {
	return slices.IndexFunc(f.Targets, func(t tracker.Target) bool { return t.Key() == in })
}

// IsTarget reports whether the pod belongs there.
func (f Facts) IsTarget(in lifecycle.Key) bool { return f.target(in) >= 0 }

// Has reports whether an instance is at an address that the pod has now.
func (f Facts) Has(in lifecycle.Key) bool {
	return !f.Gone && lifecycle.AddressOf(f.Pod) != "" && f.reaches(in)
}

// reaches reports whether an instance is at an address of the pod. An application chooses among all by which it is reached.
func (f Facts) reaches(in lifecycle.Key) bool {
	return in.Address == f.Pod.Status.PodIP || in.ByApp() && slices.Contains(lifecycle.AddressesOf(f.Pod, in.Port), in.Address)
}

// PlaceOf returns an instance at the address at which its application's entry was found last, by this process or else by the record;
// as it is where nobody has found one, and where Rollcall writes it.
func (f Facts) PlaceOf(in lifecycle.Key) lifecycle.Key {
	if !in.ByApp() {
		return in
	}
	at, latest, recorded := in, time.Time{}, false
	for _, in.Address = range lifecycle.AddressesOf(f.Pod, in.Port) {
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

// recordFound reports whether the record says that there was an entry.
func (f Facts) recordFound(in lifecycle.Key) bool {
	return f.isAmong(f.Record.Instances, in) && !f.isAmong(f.Record.Unfound, in)
}

func (f Facts) isAmong(recorded []lifecycle.Key, in lifecycle.Key) bool {
	return slices.ContainsFunc(recorded, func(r lifecycle.Key) bool { return f.named(r) == in })
}

// WasInService reports whether clients were given the instance once, by what this process or the record knows.
func (f Facts) WasInService(in lifecycle.Key) bool {
	return f.Known.Of(in).WasInService() || f.Record.WasInService() && f.isAmong(f.Record.Instances, in)
}

// saw reports whether anybody ever found an entry of the pod's application there: this process, or one that wrote the record.
func (f Facts) saw(in lifecycle.Key) bool {
	return !f.Known.Of(in).SeenAt().IsZero() || f.recordFound(in)
}

// Unseen reports whether nobody ever saw an entry of the pod's application there, nor any entry where the pod belonged before its
// description or its address changed. That there is none acknowledges nothing then.
func (f Facts) Unseen(in lifecycle.Key) bool {
	if !in.ByApp() || f.saw(in) {
		return false
	}
	return !slices.ContainsFunc(f.Instances(), func(other lifecycle.Key) bool { return !f.IsTarget(other) && f.saw(other) })
}

// leftToApp reports whether the pod leaves a place to an application's own entry: its own application's, by which clients are
// given it, or that of whichever pod has a former address by now.
func (f Facts) leftToApp(in lifecycle.Key, want lifecycle.Want) bool {
	if want == lifecycle.Absent && !f.Has(in) && (f.Gone || f.Pod.Status.PodIP != "") {
		return true
	}
	return want != lifecycle.InService && f.IsTarget(in.By(lifecycle.Application))
}

// mustBeSeen reports whether the registry has to be asked whether there was an entry that could be taken out. A pod that never was
// ready is left to its application, unless it goes. If the pod has several addresses, its application's entry may be at any of them: it
// is looked for at all while this process has found none, since no record tells where it is by now, and again once that has gone.
func (f Facts) mustBeSeen(in lifecycle.Key, want lifecycle.Want) bool {
	if want == lifecycle.InService || !in.ByApp() || !f.IsTarget(in) {
		return false
	}
	several := len(lifecycle.AddressesOf(f.Pod, in.Port)) > 1
	left := !lifecycle.WasReady(f.Pod) && !lifecycle.RolloutWaits(f.Pod)
	known := f.Known.Of(in)
	return several && known.Missing() || !left && (f.Unseen(in) || several && known.SeenAt().IsZero())
}

// neverThere reports whether the instance can't have been put in service: the pod came while this process was watching,
// which has made no call for it, and no record speaks of it. Where a hook is to be released, or there is a record, a list must have
// shown besides that no leader before this one has registered it: the watch may have lagged when this one began to lead. No list shows
// what applications register.
func (f Facts) neverThere(in lifecycle.Key, want lifecycle.Want) bool {
	if want == lifecycle.InService || !f.Known.Born() || slices.Contains(f.Instances(), in) {
		return false
	}
	needsNoList := want != lifecycle.Absent && !lifecycle.MustStayOut(f.Pod) && !f.Record.Exists()
	return needsNoList || !in.ByApp() && f.Known.Shown(in.Registry)
}

// outSince is when the record says that the instance was taken out; nil where it does not, or where another process may
// have put it back since: an application, or a manager unless the pod has stayed since the record where only "out" is ever wanted.
func (f Facts) outSince(in lifecycle.Key, want lifecycle.Want) *time.Time {
	says := f.Record.Want == want && f.isAmong(f.Record.Instances, in)
	if in.ByApp() || !f.Record.Fresh(f.Pod) || !says || !lifecycle.MustStayOut(f.Pod) {
		return nil
	}
	return f.Record.OutSince
}

// Arrived reports whether the pod is known to be in service everywhere that it belongs.
func (f Facts) Arrived() bool {
	return !f.Undescribed && !slices.ContainsFunc(f.Targets, func(t tracker.Target) bool {
		return !f.Known.Of(t.Key()).Says(lifecycle.InService, t.Instance)
	})
}
