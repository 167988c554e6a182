package plan

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// Facts are what rows depend on. They never change.
type Facts struct {
	Pod    *lifecycle.Pod
	Record lifecycle.Record
	// Gone: only entries are left of the pod.
	Gone bool
	// Owner is the ownership tag of the pod's entries.
	Owner registry.Instance
	// Targets are where the pod belongs. Undescribed: there may be more.
	Targets     []tracker.Target
	Undescribed bool
	// AddressUnknown: it can't be read which address the pod has.
	AddressUnknown bool
	// Sources are the registries where it belongs.
	Sources []lifecycle.Source
	// Unsteered is why its application may have registered it under a name that it may not use, if so.
	Unsteered waiting.Blocker
	// CountsIn is how long its weight still grows, if OpenKruise counts on it only then.
	CountsIn time.Duration
	// PassedOn are other pods' applications' entries by now.
	PassedOn map[lifecycle.Key]bool
	// Configuration is what is in force.
	Configuration Configuration
	// Known is from this process.
	Known tracker.Known

	// all and recorded are [Facts.Instances] and the record's under their present names, sorted, once [Of] has made them: it asks for each
	// row.
	all, recorded []lifecycle.Key
}

const (
	// MaxHeard is how many entries that only the record shows are dealt with at a time. Tenants can write records: each write costs no more
	// calls than this, and each entry is a removal that finds nothing.
	MaxHeard = 16
	// maxRecalled is how many of them are kept alive until then.
	maxRecalled = 50
)

// Configuration tells which registries exist, and what is to be known of each.
type Configuration interface {
	Has(registry string) bool
	CallsPods(registry string) bool
	// Lists reports whether it shows all entries together.
	Lists(registry string) bool
	// ReaderLag is how late its clients know.
	ReaderLag(registry string) time.Duration
	// MayBeOne reports whether two keys of a pod can be one entry.
	MayBeOne(a, b lifecycle.Key) bool
}

// Target marks an instance as this pod's, without a registry's name: what takes it out holds under each.
func (f Facts) Target(in lifecycle.Key) tracker.Target {
	t := tracker.Target{Registry: in.Registry, Writer: in.Writer, Instance: f.Owner}
	t.Instance.Service, t.Instance.Address, t.Instance.Port = string(in.Service), in.Address, in.Port
	return t
}

// named uses the registry's present name.
func (f Facts) named(in lifecycle.Key) lifecycle.Key {
	if !f.Configuration.Has(in.Registry) {
		in.Registry = f.Known.Renamed(in.Registry)
	}
	return in
}

// Instances are known to this process or in the record, sorted: of the entries that only the record shows, the first [MaxHeard]. Tenants
// can write records, and applications' entries carry no ownership tag, so there the record counts only for the pod's own addresses.
func (f Facts) Instances() []lifecycle.Key {
	if f.all != nil {
		return slices.Clone(f.all)
	}
	all, _ := f.instances()
	return all
}

// instances also returns the entries that only the record shows beyond [MaxHeard].
func (f Facts) instances() (all, unheard []lifecycle.Key) {
	for in := range f.Known.All() {
		all = append(all, f.named(in))
	}
	all = sorted(all)
	known := len(all)
	var heard []lifecycle.Key
	for _, in := range f.Record.Instances {
		if in.ByApp() && !in.IsAt(f.Pod) {
			continue
		}
		in = f.named(in)
		switch {
		case isAmong(all[:known], in):
		case f.IsTarget(in), !f.Configuration.Has(in.Registry): // which costs no call, and holds up no others
			all = append(all, in)
		default:
			heard = append(heard, in)
		}
	}
	heard = sorted(heard)
	n := min(len(heard), MaxHeard)
	return sorted(append(all, heard[:n]...)), heard[n:]
}

func sorted(all []lifecycle.Key) []lifecycle.Key {
	slices.SortFunc(all, lifecycle.Key.Compare)
	return slices.Compact(all)
}

// isAmong is for a sorted list.
func isAmong(all []lifecycle.Key, in lifecycle.Key) bool {
	_, found := slices.BinarySearchFunc(all, in, lifecycle.Key.Compare)
	return found
}

// OfRecord are the record's entries, with weight and metadata if the pod still has them.
func (f Facts) OfRecord() (recorded []tracker.Target) {
	if f.Record.Want == lifecycle.Absent {
		return nil
	}
	others := 0
	for _, in := range f.Record.Instances {
		in = f.named(in)
		if i := f.target(in); i >= 0 {
			recorded = append(recorded, f.Targets[i])
		} else if others++; others <= maxRecalled {
			recorded = append(recorded, f.Target(in))
		}
	}
	return recorded
}

func (f Facts) target(in lifecycle.Key) int {
	return slices.IndexFunc(f.Targets, func(t tracker.Target) bool { return t.Key() == in })
}

// IsTarget reports whether the pod belongs there.
func (f Facts) IsTarget(in lifecycle.Key) bool { return f.target(in) >= 0 }

// Has reports whether it is at an address that the pod has now.
func (f Facts) Has(in lifecycle.Key) bool {
	return !f.Gone && lifecycle.AddressOf(f.Pod) != "" && in.IsAt(f.Pod)
}

// indexed has what is asked for each row at hand.
func (f Facts) indexed() (indexed Facts, unheard []lifecycle.Key) {
	f.all, unheard = f.instances()
	f.recorded = make([]lifecycle.Key, 0, len(f.Record.Instances))
	for _, in := range f.Record.Instances {
		f.recorded = append(f.recorded, f.named(in))
	}
	f.recorded = sorted(f.recorded)
	return f, unheard
}

// WasInService reports whether clients were given it, as far as this process or the record knows.
func (f Facts) WasInService(in lifecycle.Key) bool {
	e := f.entry(in)
	return e.known.WasIn || f.Record.WasInService() && e.isRecorded()
}

// Arrived reports whether the pod is known to be in rotation wherever it belongs.
func (f Facts) Arrived() bool {
	return !f.Undescribed && !slices.ContainsFunc(f.Targets, func(t tracker.Target) bool {
		return !f.Known.Of(t.Key()).Says(lifecycle.InService, t.Instance)
	})
}
