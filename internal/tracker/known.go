package tracker

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Known is one pod's knowledge at one moment. It never changes.
type Known struct {
	instances instances
	born      bool
	// shown and renamed are replaced, never changed.
	shown   map[string]lifecycle.Coverage
	renamed map[string]string
}

// Of returns one instance.
func (k Known) Of(in lifecycle.Key) Instance { i, _ := k.instances.get(in); return i }

// All are those that pass [Instance.Known].
func (k Known) All() iter.Seq2[lifecycle.Key, Instance] {
	return func(yield func(lifecycle.Key, Instance) bool) {
		for _, n := range k.instances {
			if n.Known() && !yield(n.Key, n.Instance) {
				return
			}
		}
	}
}

// Any reports whether All has one.
func (k Known) Any() bool { return k.contains(Instance.Known) }

// WasInService reports whether an instance has been in rotation since this process leads.
func (k Known) WasInService() bool { return k.contains(func(i Instance) bool { return i.WasIn }) }

// AskedOut reports whether a registry was asked to take an instance out, and may have.
func (k Known) AskedOut() bool { return k.contains(Instance.AskedOut) }

func (k Known) contains(such func(Instance) bool) bool {
	return slices.ContainsFunc(k.instances, func(n named) bool { return such(n.Instance) })
}

// LandsUntil is until when a change of any instance may still be carried out.
func (k Known) LandsUntil() (latest time.Time) {
	for _, n := range k.instances {
		latest = later(latest, n.landsUntil(func(lifecycle.Want) bool { return true }))
	}
	return latest
}

// Born reports whether the pod came while this process watched.
func (k Known) Born() bool { return k.born }

// Listed reports whether the registry has listed some of what earlier leaders wrote.
func (k Known) Listed(registry string) bool { _, listed := k.shown[registry]; return listed }

// Shown reports whether a list would have shown the entry if an earlier leader wrote it.
func (k Known) Shown(in lifecycle.Key) bool {
	shown, listed := k.shown[in.Registry]
	return listed && shown.Has(in.Service)
}

// Renamed returns the name that the configuration has now for a registry's former name, else the name.
func (k Known) Renamed(registry string) string { return cmp.Or(k.renamed[registry], registry) }

// Mark returns the registry's name in the entry: the current one if unknown; none if a former one was found, and a Register may have
// replaced it.
func (k Known) Mark(in lifecycle.Key) string {
	i := k.Of(in)
	if mark := cmp.Or(i.mark, in.Registry); mark == in.Registry || !i.attempted() {
		return mark
	}
	return ""
}
